"""doctor, server and login: told apart over HTTP, and no password is ever shown."""

from fake_server import LOGIN, Fake

from deployments.embedded import check_server


def verdicts(url: str | None, login: str | None = LOGIN, has_key: bool = False) -> dict[str, str]:
    found = check_server(url, login, has_key=has_key)
    assert "canary" not in str(found)
    return {row.what: row.verdict for row in found}


def test_a_server_with_login_pool_and_worker_is_ok_and_a_pool_without_worker_is_noted(fake: type[Fake]) -> None:
    assert verdicts(fake.url) == {
        "login": "ok",
        "server": "ok",
        "pool trajpilot-cpu": "ok",
        "pool trajpilot-gpu": "note",
        "deployments": "ok",
    }


def test_a_wrong_or_missing_login_and_a_key_over_it_are_bad_and_a_server_without_login_is_noted(
    fake: type[Fake],
) -> None:
    assert [verdicts(fake.url, login) for login in (None, "admin:canary-wrong")] == [{"login": "bad"}] * 2
    assert verdicts(fake.url, has_key=True)["login"] == "bad"
    fake.login = None
    assert verdicts(fake.url)["login"] == "note"


def test_another_version_no_pools_and_no_deployments_are_noted(fake: type[Fake]) -> None:
    fake.version, fake.workers, fake.deployments = "3.0.0", {}, []
    assert verdicts(fake.url) == {
        "login": "ok",
        "server": "note",
        "pool trajpilot-cpu": "note",
        "pool trajpilot-gpu": "note",
        "deployments": "note",
    }


def test_a_server_that_does_not_answer_and_an_address_that_is_none_are_bad_and_none_is_needed() -> None:
    assert verdicts(None) == {"server": "ok"}
    assert verdicts("http://127.0.0.1:9/api") == {"server": "bad"}
    assert verdicts("file:///etc/passwd") == {"server": "bad"}


def test_a_server_that_sends_the_login_elsewhere_is_not_followed(fake: type[Fake]) -> None:
    fake.moved_to = fake.url.replace("/api", "/elsewhere")
    (found,) = check_server(fake.url, LOGIN, has_key=False)
    assert (found.verdict, found.found) == ("bad", "HTTP 302")
