"""Dense attention for a model with sparse attention (DSA), whose kernels need CUDA.

The indexer of such a model selects `index_topk` tokens for each query to attend to. While a context is not longer than that
it selects all of them, and dense attention computes the same. A longer context is refused when the server starts: it would
be answered, without a word, as by another model.
"""

import functools
import logging
import re
from types import ModuleType
from typing import Any

LABEL = "dense attention in place of sparse attention (DSA)"
OF_INDEXER = re.compile(
    r"\.self_attn\.indexer\."
    r"(((wq_b|wk|weights_proj)\.(weight|weight_scale))|k_norm\.(weight|bias)|index_kpool_compress_(ape|gate))"
)

log = logging.getLogger(__name__)


def serve_dense(model_config: ModuleType) -> None:
    """Has SGLang take every model for one without sparse attention, if it admits no longer context than the indexer selects."""
    is_sparse, construct = model_config.is_deepseek_dsa, model_config.ModelConfig.__init__

    @functools.wraps(construct)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        if is_sparse(self.hf_text_config) and not self.hf_config.encoder_only:
            check_context(self.context_len, self.hf_text_config.index_topk)

    model_config.ModelConfig.__init__ = checked
    model_config.is_deepseek_dsa = lambda config: False


@functools.cache
def check_context(tokens: int, selected: int) -> None:
    """Says once in a process what is served. Raises ValueError if a context may have more `tokens` than are `selected`."""
    if tokens > selected:
        raise ValueError(
            f"serving/cpu has dense attention only, which is not this model's beyond `index_topk` = {selected} tokens, and "
            f"contexts of {tokens} tokens are admitted: start it with --context-length={selected} or less"
        )
    log.warning("serving/cpu: %s: the same up to %d tokens, and %d are admitted", LABEL, selected, tokens)


def left_out(model: Any, unused: list[str]) -> dict[str, list[str]]:
    """Those of a checkpoint's `unused` keys that dense attention has no use for, under the label that says why."""
    if getattr(model.config, "index_topk", None) is None:
        return {}
    return {LABEL: [key for key in unused if OF_INDEXER.search(key)]}
