"""SGLang's recurrent KDA kernel, from the files of its wheel, with the answers that an H200 gives to what it asks.

Only the kernel's own module is imported: the package around it needs a server's worth of others.
"""

import sys
import types
from pathlib import Path


def _stand_in(name, **values):
    module = types.ModuleType(name)
    module.__path__ = [str(Path(__file__).parent)]
    module.__dict__.update(values)
    sys.modules[name] = module


def _true():
    return True


def _false():
    return False


for _name in ("sglang", "sglang.kernels", "sglang.kernels.ops", "sglang.kernels.ops.attention",
              "sglang.kernels.ops.attention.linear", "sglang.kernels.jit", "sglang.srt"):  # fmt: skip
    _stand_in(_name)
# Programmatic dependent launch is a question of scheduling, and the interpreter has none: it is taken as off.
_stand_in("sglang.kernels.jit.utils", is_arch_support_pdl=_false)
_stand_in("sglang.srt.utils", is_cuda=_true, is_hip=_false, is_gfx95_supported=_false, is_sm90_supported=_true,
          get_device_sm=lambda: 90)  # fmt: skip

from sglang.kernels.ops.attention.linear.fused_sigmoid_gating_recurrent import (  # noqa: E402
    fused_sigmoid_gating_delta_rule_update,
)


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    """Shapes of kda_decode; one token is a sequence of its own. Gives a new output, as in the engine."""
    q, k, v, a, b = (x.unsqueeze(1) for x in (q, k, v, a, b))
    return fused_sigmoid_gating_delta_rule_update(
        A_log, a, dt_bias, 1.0, 20.0, q, k, v, b, state, state_index, scale=scale, use_qk_l2norm_in_kernel=True,
        is_kda=True, lower_bound=lower_bound,
    )  # fmt: skip
