"""An address with a login in it is refused before anything is written, and nobody repeats the login."""

import re
from pathlib import Path

import pytest
from hostile import SECRET
from typer.testing import CliRunner

from deployments.cli.main import app
from schemas.config import PipelineConfig, RunOptions
from schemas.places import holds_login
from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.store.locations import parse_location

WITH_LOGIN = (
    f"s3://AKIA:{SECRET}@bucket/x",
    f"s3://{SECRET}@bucket",
    f"https://hub/x?token={SECRET}",
    f"s3://bucket/x?X-Amz-Signature={SECRET}",
    f"file://me:{SECRET}@host/x",
    f"s3://b/x?a=1&aws_secret_access_key={SECRET}",
)
WITHOUT = ("s3://bucket/x", "/data/a@b", "runs", "", "s3://bucket/key=1/x", "C:/data", "org/model", "/x/user:y@z")


def test_an_address_with_a_login_is_refused_by_records_and_by_the_store_and_not_repeated() -> None:
    for address in WITH_LOGIN:
        with pytest.raises(StoreError) as store:
            parse_location(address)
        assert SECRET not in str(store.value)
        for field in ("root", "data_root"):
            with pytest.raises(ValueError, match="holds a login") as record:
                RunOptions.model_validate({field: address})
            assert SECRET not in str(record.value)
        for part in ({"features": {"checkpoint": address}}, {"text_bank": {"model": address}}):
            with pytest.raises(ValueError, match="holds a login"):
                PipelineConfig.model_validate(part)


def test_an_address_without_a_login_is_left_alone_and_the_pattern_of_forms_is_the_rule_itself() -> None:
    assert [address for address in WITHOUT if RunOptions(root=address, data_root=address).root != address] == []
    pattern = RunOptions.model_json_schema()["properties"]["data_root"]["pattern"]
    for address in (*WITH_LOGIN, *WITHOUT):
        assert (re.search(pattern, address) is None) == holds_login(address) == (address in WITH_LOGIN), address


def test_no_command_repeats_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    either = ("status", "plan", "doctor")
    lines = [f"{name} --data ADDRESS" for name in ("run", *either)] + ["deploy --data ADDRESS --root s3://b/x"]
    lines += [f"{name} --root ADDRESS" for name in ("run --data .", "demo", *either, "verify", "gc", "ui")]
    lines += [f"run --data . --set {name}=ADDRESS" for name in ("features.checkpoint", "text_bank.model")]
    for line in lines:
        result = CliRunner().invoke(app, line.replace("ADDRESS", WITH_LOGIN[0]).split())
        assert isinstance(result.exception, InputError | StoreError), (line, result.output)
        assert SECRET not in result.output + str(result.exception), line
        assert "holds a login" in str(result.exception), line
    assert list(tmp_path.iterdir()) == []


def test_a_server_s_address_with_a_login_is_refused_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one the command goes on to what it is to deploy."""
    for login, said in ((f"admin:{SECRET}@", "PREFECT_API_AUTH_STRING"), ("", "give --data DATA")):
        monkeypatch.setenv("PREFECT_API_URL", f"http://{login}127.0.0.1:1/api")
        result = CliRunner().invoke(app, ["deploy"])
        assert isinstance(result.exception, InputError)
        assert SECRET not in result.output + str(result.exception)
        assert said in str(result.exception)
