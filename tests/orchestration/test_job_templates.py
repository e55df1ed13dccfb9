"""Jobs of workers in containers: nobody special, data read-only, no key in the environment."""

import json
import re
from itertools import product
from typing import Any

from checkout import CHECKOUT


def placeholders(value: Any) -> set[str]:
    """Names between double braces, at any depth."""
    return set(re.findall(r"\{\{ (\w+) \}\}", json.dumps(value)))


def test_the_job_templates_declare_what_they_use_run_as_nobody_special_and_keep_data_read_only() -> None:
    from prefect.client.schemas.actions import WorkPoolCreate

    for kind, unit in product(("docker", "kubernetes"), ("cpu", "gpu")):
        template = json.loads((CHECKOUT / "deployments" / "pools" / f"{kind}-{unit}.json").read_text())
        WorkPoolCreate(name="x", type=kind, base_job_template=template)
        job, variables = template["job_configuration"], template["variables"]["properties"]
        assert placeholders(job) == set(variables)
        assert variables["image"]["default"] == "trajpilot:0.1.0"
        assert variables["env"]["default"]["DO_NOT_TRACK"] == "1"
        assert "AUTH" not in json.dumps(variables["env"])
        if kind == "docker":
            assert job["privileged"] is False
            mounted = [v for v in variables["volumes"]["default"] if "/data" in v.split(":")]
            assert mounted == ["/srv/trajpilot/data:/data:ro"]
            assert (variables["env"]["default"]["NVIDIA_VISIBLE_DEVICES"] == "void") is (unit == "cpu")
        else:
            pod = job["job_manifest"]["spec"]["template"]["spec"]
            assert pod["securityContext"]["runAsNonRoot"] is True
            (container,) = pod["containers"]
            assert {m["mountPath"] for m in container["volumeMounts"] if m.get("readOnly")} == {"/data"}
            assert ("nvidia.com/gpu" in container["resources"]["limits"]) is (unit == "gpu")
