// Vectors of the width of one instruction set. Everything here has internal linkage: two levels
// must never share a function, or the linker keeps the copy that an older processor cannot run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace {

#if defined(__AVX512F__)
constexpr std::size_t vector_bytes = 64;
constexpr int tile_rows = 8, tile_vectors = 2;
#elif defined(__AVX2__)
constexpr std::size_t vector_bytes = 32;
constexpr int tile_rows = 6, tile_vectors = 2;
#else
constexpr std::size_t vector_bytes = 16;
constexpr int tile_rows = 4, tile_vectors = 2;
#endif

template <class T>
struct Lanes {
    static constexpr bool single = sizeof(T) == 4;
    using integer = std::conditional_t<single, std::uint32_t, std::uint64_t>;
    typedef T vector __attribute__((vector_size(vector_bytes)));
    typedef integer bits __attribute__((vector_size(vector_bytes)));
    static constexpr int mantissa = single ? 23 : 52;
    // Adding it leaves an integer in the low bits.
    static constexpr T round = single ? T(0x1.8p23) : T(0x1.8p52);
};

template <class T>
using Vector = typename Lanes<T>::vector;
template <class T>
using Bits = typename Lanes<T>::bits;

template <class T>
constexpr std::size_t lanes = vector_bytes / sizeof(T);

template <class T>
inline Vector<T> load(const T* p) {
    Vector<T> v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

template <class T>
inline void store(T* p, Vector<T> v) {
    std::memcpy(p, &v, sizeof v);
}

template <class T>
inline Vector<T> all(T x) {
    return x - Vector<T>{};
}

template <class T, class Mask>
inline Vector<T> choose(Mask comparison, Vector<T> yes, Vector<T> no) {
    const Bits<T> mask = (Bits<T>)comparison;
    return (Vector<T>)(((Bits<T>)yes & mask) | ((Bits<T>)no & ~mask));
}

template <class T>
inline Vector<T> magnitude(Vector<T> x) {
    constexpr auto sign = (typename Lanes<T>::integer)1 << (8 * sizeof(T) - 1);
    return (Vector<T>)((Bits<T>)x & ~sign);
}

// One instruction: compilers join the lanes.
template <class T>
inline Vector<T> root(Vector<T> x) {
#pragma GCC unroll 16
    for (std::size_t k = 0; k < lanes<T>; ++k)
        x[k] = sizeof(T) == 4 ? __builtin_sqrtf(x[k]) : __builtin_sqrt(x[k]);
    return x;
}

}  // namespace
