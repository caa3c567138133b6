"""One pass over the state in C++: each row is read once, decayed, corrected and written while it is in registers.

Norms, gate and sigmoid are computed once per head. bf16 inputs are widened where they are read.
"""

import ctypes
from pathlib import Path

import torch

CPP = r"""
#include <cmath>
#include <cstdint>
#include <cstring>

static inline float wide(float x) { return x; }
static inline float wide(uint16_t x) {
    uint32_t bits = uint32_t(x) << 16;
    float y;
    std::memcpy(&y, &bits, 4);
    return y;
}
static inline void narrow(float x, float* to) { *to = x; }
static inline void narrow(float x, uint16_t* to) {  // nearest, ties to even
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    *to = std::isnan(x) ? uint16_t(0x7fc0) : uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

template <class T>
static void decode(const T* q, const T* k, const T* v, const T* a, const T* b, const float* A_log, const float* dt_bias,
                   float* state, const int32_t* state_index, T* out, float* buffer, int64_t B, int64_t H, int64_t K,
                   int64_t V, float scale, float lower_bound, bool bounded) {
    float *query = buffer, *key = buffer + K, *decay = buffer + 2 * K;
    for (int64_t i = 0; i < B * H; i++) {
        int64_t h = i % H;
        float qq = 0, kk = 0, rate = std::exp(A_log[h]);
        for (int64_t c = 0; c < K; c++) {
            query[c] = wide(q[i * K + c]);
            key[c] = wide(k[i * K + c]);
            float raw = wide(a[i * K + c]) + dt_bias[h * K + c];
            float gate = bounded ? lower_bound / (1 + std::exp(-rate * raw))
                                 : -rate * (raw > 20 ? raw : std::log1p(std::exp(raw)));
            decay[c] = std::exp(gate);
        }
#pragma omp simd reduction(+ : qq, kk)
        for (int64_t c = 0; c < K; c++) {
            qq += query[c] * query[c];
            kk += key[c] * key[c];
        }
        float of_query = scale / std::sqrt(qq + 1e-6f), of_key = 1 / std::sqrt(kk + 1e-6f);
        for (int64_t c = 0; c < K; c++) {
            query[c] *= of_query;
            key[c] *= of_key;
        }
        float beta = 1 / (1 + std::exp(-wide(b[i])));
        float* rows = state + (int64_t(state_index[i / H]) * H + h) * V * K;
        for (int64_t r = 0; r < V; r++) {
            float *row = rows + r * K, found = 0, read = 0;
#pragma omp simd reduction(+ : found)
            for (int64_t c = 0; c < K; c++) found += row[c] * decay[c] * key[c];
            float update = beta * (wide(v[i * V + r]) - found);
#pragma omp simd reduction(+ : read)
            for (int64_t c = 0; c < K; c++) {
                float x = row[c] * decay[c] + update * key[c];
                row[c] = x;
                read += x * query[c];
            }
            narrow(read, out + i * V + r);
        }
    }
}

#define ENTRY(NAME, T)                                                                                               \
    extern "C" void NAME(const void* q, const void* k, const void* v, const void* a, const void* b,                  \
                         const float* A_log, const float* dt_bias, float* state, const int32_t* state_index,         \
                         void* out, float* buffer, int64_t B, int64_t H, int64_t K, int64_t V, float scale,          \
                         float lower_bound, bool bounded) {                                                          \
        decode((const T*)q, (const T*)k, (const T*)v, (const T*)a, (const T*)b, A_log, dt_bias, state, state_index,  \
               (T*)out, buffer, B, H, K, V, scale, lower_bound, bounded);                                            \
    }
ENTRY(decode_float32, float)
ENTRY(decode_bfloat16, uint16_t)
"""

_library = ctypes.CDLL(str(Path(__file__).with_suffix(".cpp.so")))
_pointers, _sizes = [ctypes.c_void_p] * 11, [ctypes.c_int64] * 4
_ENTRIES = {torch.float32: _library.decode_float32, torch.bfloat16: _library.decode_bfloat16}
for _entry in _ENTRIES.values():
    _entry.argtypes = [*_pointers, *_sizes, ctypes.c_float, ctypes.c_float, ctypes.c_bool]
    _entry.restype = None


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    """Shapes and dtypes: definition.yaml. Writes `out` and updates `state` in place."""
    B, H, K = q.shape
    tensors = (q, k, v, a, b, A_log, dt_bias, state, state_index, out, torch.empty(3 * K))
    _ENTRIES[q.dtype](
        *(x.data_ptr() for x in tensors), B, H, K, v.shape[-1], scale, lower_bound or 0.0, lower_bound is not None
    )
