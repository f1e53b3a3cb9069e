// The Walsh-Hadamard transform of rows whose length is a power of two. Stages go from the shortest
// stride to the longest at every level, so that all give the same bits, and memory is first met in
// order. A pass holds up to eight vectors in registers for three stages; a piece is finished
// before the next is begun, so that long rows pass through each cache once.
#pragma once

#include <utility>

#include "elementary.hpp"
#include "levels.hpp"

namespace {

// Lane k takes lane k ^ h.
template <class T, std::size_t h, std::size_t... k>
inline Vector<T> exchanged(Vector<T> v, std::index_sequence<k...>) {
#if defined(__clang__) || __GNUC__ >= 12
    return __builtin_shufflevector(v, v, int(k ^ h)...);
#else
    return __builtin_shuffle(v, Bits<T>{typename Lanes<T>::integer(k ^ h)...});
#endif
}

template <class T, std::size_t h, std::size_t... k>
inline Vector<T> signs(std::index_sequence<k...>) {
    return Vector<T>{(k & h ? T(-1) : T(1))...};
}

// The stages of strides h, 2 h, ... inside a vector.
template <class T, std::size_t h = 1>
inline Vector<T> inside(Vector<T> v) {
    if constexpr (h == lanes<T>) return v;
    else {
        constexpr auto every = std::make_index_sequence<lanes<T>>{};
        return inside<T, 2 * h>(v * signs<T, h>(every) + exchanged<T, h>(v, every));
    }
}

// The stages of strides 1, 2, ..., R / 2 between R vectors, those from `first` on.
template <std::size_t R, std::size_t first = 0, class V>
inline void between(V* v) {
    if constexpr (R > 1) {
        constexpr std::size_t h = R / 2;
        between<h, first>(v);
        between<h, first + h>(v);
#pragma GCC unroll 8
        for (std::size_t i = 0; i < h; ++i) {
            const V a = v[first + i], b = v[first + i + h];
            v[first + i] = a + b;
            v[first + i + h] = a - b;
        }
    }
}

// log2(R) stages of the longest strides, n / 2 and on.
template <std::size_t R, class T>
inline void longest(T* out, std::size_t n) {
    const std::size_t stride = n / R;
    for (std::size_t k = 0; k < stride; k += lanes<T>) {
        Vector<T> v[R];
#pragma GCC unroll 8
        for (std::size_t i = 0; i < R; ++i) v[i] = load(out + i * stride + k);
        between<R>(v);
#pragma GCC unroll 8
        for (std::size_t i = 0; i < R; ++i) store(out + i * stride + k, v[i]);
    }
}

// All stages of R vectors.
template <std::size_t R, class T>
inline void shortest(const T* in, T* out) {
    Vector<T> v[R];
#pragma GCC unroll 8
    for (std::size_t i = 0; i < R; ++i) v[i] = inside<T>(load(in + i * lanes<T>));
    between<R>(v);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < R; ++i) store(out + i * lanes<T>, v[i]);
}

template <class T>
inline void within_vector(const T* in, T* out, std::size_t n) {
    for (std::size_t k = 0; k < n; ++k) out[k] = in[k];
    for (std::size_t h = 1; h < n; h *= 2)
        for (std::size_t k = 0; k < n; ++k)
            if (!(k & h)) {
                const T a = out[k], b = out[k + h];
                out[k] = a + b;
                out[k + h] = a - b;
            }
}

// One row; `out` may be `in`.
template <class T>
void transform(const T* in, T* out, std::size_t n) {
    constexpr std::size_t w = lanes<T>;
    if (n < w) return within_vector(in, out, n);
    if (n == w) return shortest<1>(in, out);
    if (n == 2 * w) return shortest<2>(in, out);
    if (n == 4 * w) return shortest<4>(in, out);
    if (n == 8 * w) return shortest<8>(in, out);
    const std::size_t pieces = n == 16 * w ? 2 : n == 32 * w ? 4 : 8, piece = n / pieces;
    for (std::size_t k = 0; k < n; k += piece) transform<T>(in + k, out + k, piece);
    if (pieces == 2) longest<2>(out, n);
    else if (pieces == 4) longest<4>(out, n);
    else longest<8>(out, n);
}

template <class T>
void hadamard(const bochner::Rows<T>& rows, std::size_t first, std::size_t last, T*) {
    for (std::size_t i = first; i < last; ++i)
        transform<T>(rows.X + i * rows.d, rows.out + i * rows.stride, rows.d);
}

}  // namespace
