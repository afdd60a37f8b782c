"""Rollouts by vLLM (arXiv 2309.06180) behind the interface of ``TorchSampler``, in this process, without a port.

After each optimiser step :meth:`VllmSampler.sync` hands the weights over: all of them (``load_weights``), or, under
LoRA, the adapter, which the engine applies beside its own copy of the base, never merged. Then the prefix and
multimodal caches are emptied, since they hold what the old weights computed, and the canary is answered
(``headroom.policy.canary``); a gap above the tolerance is an :class:`EngineError`, and a run stops there.

Sampling and scoring agree as far as rounding allows: the whole softmax (no top-k, top-p or penalty), at the
temperature asked for, and log-probabilities of that very softmax (``processed_logprobs``). Each sample has a generator
of its own, seeded by its seed, so it repeats alone or beside others. Deviations from ``TorchSampler``: another
generator, hence other samples from equal seeds; ``Generation.entropy`` is NaN, since the engine returns the
log-probability of the sampled token alone (the trainer measures the entropy when it scores).

vLLM is imported here and only when a sampler is made. It needs an environment of its own (``envs/rollout.yaml``).
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headroom.config.models import Lora, Vllm
from headroom.policy.canary import TOKENS, TOLERANCE, canary_prompts, canary_scores, canary_seeds, judge
from headroom.policy.engine import Adapters, EngineError
from headroom.policy.load import Dtype
from headroom.policy.sampler import Generation, Ids, check_request
from headroom.policy.vllm_language import for_engine

_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The adapter widths that vLLM has room for; the factors of another rank are padded."""

_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # in this process: the weights need no way out of it
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "HF_HUB_OFFLINE": "1",
}


class VllmSampler:
    """Samples from a decoder's checkpoint folder, kept equal to a trained model by :meth:`sync`."""

    def __init__(
        self,
        folder: Path,
        end_ids: Sequence[int],
        settings: Vllm,
        *,
        dtype: Dtype = "float32",
        temperature: float = 1.0,
        lora: Lora | None = None,
        adapters: Adapters | None = None,
    ) -> None:
        """Start the engine on the weights of ``folder``.

        Args:
            folder: a checkpoint (``headroom.policy.files.check_checkpoint``); under ``lora`` the base for good.
            end_ids: end an action; several may.
            settings: sizes, and the canary's tolerance.
            dtype: that the engine computes in.
            temperature: of the canary.
            lora: adapters of this shape will be synced, not weights.
            adapters: needed with ``lora``.

        Raises:
            EngineError: vLLM is not in this environment, or cannot hold the model.
        """
        self.end_ids = tuple(end_ids)
        self.tolerance = settings.canary_tolerance or TOLERANCE[dtype]
        self._lora, self._adapters, self._adapter = lora, adapters, None
        self._temperature, self._syncs = temperature, 0
        self._vllm = vllm = _import_vllm()
        options: dict[str, Any] = {}
        if lora is not None:
            rank = next((size for size in _RANKS if size >= lora.rank), None)
            if rank is None:
                raise EngineError(f"trainer.lora.rank is {lora.rank}; vLLM holds ranks up to {_RANKS[-1]}")
            options |= {"enable_lora": True, "max_lora_rank": rank, "max_loras": 1, "max_cpu_loras": 1}
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:  # each process of the job has an engine of its own
            options |= {"distributed_executor_backend": "external_launcher"}
        if not torch.cuda.is_available():  # compiling takes longer there than it saves
            options |= {"enforce_eager": True, "block_size": 32}
        self._view = tempfile.TemporaryDirectory(prefix="headroom-engine-")
        read = for_engine(folder, Path(self._view.name))
        config = vllm.transformers_utils.config.get_config(str(read), trust_remote_code=False)
        own = getattr(config, "max_position_embeddings", settings.longest)
        self.longest = min(settings.longest, int(own))
        try:
            with _undisturbed():
                self._llm = vllm.LLM(
                    model=str(read),
                    skip_tokenizer_init=True,
                    trust_remote_code=False,
                    load_format="safetensors",
                    use_tqdm_on_load=False,
                    dtype=dtype,
                    generation_config="vllm",  # no top-p of a checkpoint's own
                    logprobs_mode="processed_logprobs",
                    max_model_len=self.longest,
                    max_num_seqs=settings.sequences,
                    # A prompt is never cut: a seeded request whose prompt is computed in parts fails on processors.
                    enable_chunked_prefill=False,
                    max_num_batched_tokens=max(self.longest, 8192),
                    enable_prefix_caching=True,
                    kv_cache_memory_bytes=settings.cache_mb * 2**20,
                    gpu_memory_utilization=0.01,  # a check of free memory; the cache has a size of its own
                    disable_log_stats=True,
                    seed=0,
                    **options,
                )
        except (ValueError, RuntimeError, MemoryError) as error:
            raise EngineError(
                f"{folder}: vLLM cannot hold this model ({_first_line(error)}); "
                "lower grpo.vllm.longest or sequences, raise grpo.vllm.cache_mb, or use engine: torch"
            ) from error
        block = self._llm.llm_engine.vllm_config.cache_config.block_size
        self._canary = canary_prompts(int(config.get_text_config().vocab_size), self.longest, block)
        self._folder = tempfile.TemporaryDirectory(prefix="headroom-adapter-")

    def sync(self, model: Any) -> float:
        """Take over the weights of ``model`` (of its adapter, under LoRA); the canary's gap in nats.

        Raises:
            EngineError: a weight was not taken, a cache not emptied, or the canary's gap is above the tolerance.
            FloatingPointError: ``model`` gives no finite probabilities.
        """
        self._syncs += 1
        try:
            with _undisturbed():
                if self._lora is None:
                    self._load(model)
                else:
                    self._serve(model)
                if not self._forget():
                    raise self._fault("its prefix cache could not be emptied")
                return self._check(model)
        except (RuntimeError, ValueError, KeyError, AssertionError) as error:  # the library's own
            raise self._fault(_first_line(error)) from error

    def generate(
        self, prompts: Sequence[Ids], *, temperature: float, seeds: Sequence[int], max_new_tokens: int
    ) -> list[Generation]:
        """See ``TorchSampler.generate``; ``entropy`` is NaN.

        Raises:
            ValueError: an argument is out of range.
            EngineError: a prompt is too long for the engine.
            FloatingPointError: the model gives no finite probabilities.
        """
        check_request(prompts, seeds, temperature, max_new_tokens)
        most = max((len(prompt) for prompt in prompts), default=0)
        if most + max_new_tokens > self.longest:
            raise EngineError(
                f"a prompt has {most} tokens and its action up to {max_new_tokens}, the engine holds {self.longest}; "
                "raise grpo.vllm.longest"
            )
        with _undisturbed():
            outputs = self._answer(prompts, temperature, seeds, max_new_tokens, self.end_ids)
        made = [_generation(output.outputs[0]) for output in outputs]
        if not all(np.isfinite(one.log_probabilities).all() for one in made):
            raise FloatingPointError("the model's probabilities are not finite; its weights are beyond use")
        return made

    def close(self) -> None:
        """Free the engine's memory."""
        self._llm.llm_engine.engine_core.shutdown()
        self._folder.cleanup()
        self._view.cleanup()

    def _answer(
        self, prompts: Sequence[Ids], temperature: float, seeds: Sequence[int], tokens: int, ends: Sequence[int]
    ) -> list[Any]:
        parameters = [
            self._vllm.SamplingParams(
                temperature=temperature,
                seed=seed % 2**63 if temperature else None,
                max_tokens=tokens,
                stop_token_ids=list(ends),
                ignore_eos=True,  # the end ids are ours to say, all of them
                logprobs=0,  # of the sampled token
                detokenize=False,
            )
            for seed in seeds
        ]
        requests = [{"prompt_token_ids": [int(token) for token in prompt]} for prompt in prompts]
        found: list[Any] = self._llm.generate(requests, parameters, use_tqdm=False, lora_request=self._adapter)
        return found

    def _load(self, model: Any) -> None:
        """Every tensor, under its name in a checkpoint; vLLM copies and fuses."""

        def take(own: Any) -> tuple[set[str], set[str]]:
            return {name for name, _ in own.named_parameters()}, set(own.load_weights(self._weights(model)))

        ((all_names, taken),) = self._llm.apply_model(take)
        if missing := sorted(all_names - taken):
            raise self._fault(f"{len(missing)} weights were not taken, {missing[0]} first")

    def _weights(self, model: Any) -> Iterator[tuple[str, Tensor]]:
        for name, parameter in model.named_parameters():
            yield name, parameter.detach()

    def _serve(self, model: Any) -> None:
        """A new adapter under a new number, so that nothing of the old one can answer for it."""
        assert self._adapters is not None
        assert self._lora is not None
        folder = Path(self._folder.name, str(self._syncs))
        self._adapters.save(model, self._lora, folder)
        if self._adapter is not None:
            self._llm.llm_engine.remove_lora(self._adapter.lora_int_id)
        self._adapter = self._vllm.lora.request.LoRARequest(f"sync-{self._syncs}", self._syncs, str(folder))

    def _forget(self) -> bool:
        self._llm.reset_mm_cache()
        return bool(self._llm.reset_prefix_cache())

    def _check(self, model: Any) -> float:
        outputs = self._answer(self._canary, self._temperature, canary_seeds(), TOKENS, ())
        if any(output.num_cached_tokens for output in outputs):
            raise self._fault("its prefix cache still answers with what older weights computed")
        made = [_generation(output.outputs[0]) for output in outputs]
        ids = torch.from_numpy(np.stack([one.ids for one in made])).long()
        base = None
        if self._adapters is not None and self._lora is not None:
            with self._adapters.switched_off(model):
                base = canary_scores(model, self._canary, ids, self._temperature)
        trained = canary_scores(model, self._canary, ids, self._temperature)
        gap, wrong = judge(np.stack([one.log_probabilities for one in made]), trained, base, self.tolerance)
        if wrong:
            raise self._fault(wrong)
        return gap

    def _fault(self, what: str) -> EngineError:
        return EngineError(
            f"vLLM does not answer as the policy does after sync {self._syncs}: {what}. The run stops, because it "
            "would train on another policy's actions; report this, or use engine: torch"
        )


def _generation(output: Any) -> Generation:
    ids = np.asarray(output.token_ids, dtype=np.int32)
    chosen = [step[token].logprob for step, token in zip(output.logprobs, output.token_ids, strict=True)]
    return Generation(ids, np.asarray(chosen, dtype=np.float32), np.full(len(ids), np.nan, dtype=np.float32))


def _import_vllm() -> Any:
    """The library, quiet and by itself.

    Raises:
        EngineError: it is not in this environment.
    """
    os.environ.update(_ENVIRONMENT)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    if not torch.cuda.is_available():
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    warnings.filterwarnings("ignore", category=FutureWarning, module="vllm")
    try:
        import vllm
        import vllm._custom_ops
        import vllm.lora.request
        import vllm.transformers_utils.config
    except ImportError as error:
        raise EngineError(
            f"engine: vllm needs vLLM, which this environment has not ({_first_line(error)}); run the job in "
            "envs/rollout.yaml or .venv-vllm (./setup.sh --vllm), or use engine: torch"
        ) from error
    # oneDNN packs weights at load time: a later load_weights would leave the packed ones, a tied lm_head for one.
    vllm._custom_ops._supports_onednn = False
    return vllm


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Without the error for operations that could differ between runs, which some of vLLM's are."""
    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("default")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
