"""Serve a Self-RAG checkpoint with vLLM: the right flags, a wait until it answers, and a check.

    python integrations/vllm_server/serve.py MODEL [--port 8000] [any option of vLLM's server]

MODEL is a folder or a hub name, such as selfrag/selfrag_llama2_7b. Ctrl-C ends the server.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from os import environ

import httpx
from pydantic import SecretStr

from selfcorrect_rag.errors import SelfCorrectError
from selfcorrect_rag.models import VLLMServerReflectionLLM
from selfcorrect_rag.prompts import decision_prompt
from selfcorrect_rag.reflection import Group, retrieval_probability


def command(model: str, port: int, further: Sequence[str]) -> list[str]:
    """Return the server's command line.

    A checkpoint's own sampling defaults are ignored: without ``--generation-config vllm`` they
    would change what greedy decoding writes. Top-k ``logprobs`` are refused unless ``further``
    allows them: one request for chosen ids in a batch gives all of them minus infinity. Log-
    probabilities of chosen ids themselves are not counted.
    """
    options = ["--model", model, "--port", str(port), "--generation-config", "vllm"]
    if not any(option.split("=")[0] == "--max-logprobs" for option in further):
        options += ["--max-logprobs", "0"]
    return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *options, *further]


def wait(server: subprocess.Popen[bytes], url: str, seconds: float) -> None:
    """Wait until the server answers.

    Raises:
        SystemExit: it ended or took too long.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise SystemExit(f"the server ended with status {server.returncode}: see above")
        try:
            if httpx.get(f"{url}/health", timeout=2).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    raise SystemExit(f"no answer at {url} within {seconds:g} s")


def check(url: str) -> str:
    """Connect as the library does, ask for one decision, and return a line about it."""
    key = environ.get("VLLM_API_KEY")
    with VLLMServerReflectionLLM(base_url=url, api_key=SecretStr(key) if key else None) as llm:
        (decision,) = llm.choose([decision_prompt("Who wrote Middlemarch?")], Group.RETRIEVE)
        probability = retrieval_probability(decision["reflections"][0])
        return (
            f"ready: {llm.model} at {url}, context {llm.context_tokens} tokens; "
            f"P(retrieve | Who wrote Middlemarch?) = {probability:.3f}"
        )


def main() -> int:
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("model", help="Folder or hub name.")
    parser.add_argument("--port", type=int, default=8000, help="Default: %(default)s.")
    parser.add_argument(
        "--wait", type=float, default=900, help="Seconds that it may take. Default: %(default)s."
    )
    args, further = parser.parse_known_args()
    if find_spec("vllm") is None:
        raise SystemExit('vLLM is not installed: pip install "selfcorrect-rag[vllm]"')
    url = f"http://localhost:{args.port}"
    server = subprocess.Popen(command(args.model, args.port, further))
    try:
        wait(server, url, args.wait)
        print(check(url), flush=True)
        return server.wait()
    except SelfCorrectError as error:
        raise SystemExit(f"the server runs but is not fit for use: {error}") from error
    except KeyboardInterrupt:
        return 0
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    sys.exit(main())
