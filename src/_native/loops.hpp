// The loops. A tile of rows times columns is summed over the d inputs in registers, one order of
// operations for every element whatever its neighbours, so no bit depends on how rows are grouped.
// A strip of finished sums then passes through one elementary function on its way to memory.
#pragma once

#include "elementary.hpp"
#include "hadamard.hpp"
#include "levels.hpp"

namespace {

using bochner::Op;
using bochner::Task;

template <class T>
constexpr std::size_t panel_width = tile_vectors * lanes<T>;

constexpr std::size_t settle_every = 32;  // inputs between two removals of whole turns

constexpr std::size_t strip = 512;  // columns of a strip: with its packed panels it fits level 1 or 2

template <class T>
void pack(const T* source, std::size_t d, std::size_t m, std::size_t row, std::size_t column,
          T* panels) {
    for (std::size_t f = 0; f < m; f += panel_width<T>, panels += d * panel_width<T>)
        for (std::size_t j = 0; j < d; ++j)
            for (std::size_t k = 0; k < panel_width<T>; ++k)
                panels[j * panel_width<T> + k] =
                    f + k < m ? source[j * row + (f + k) * column] : T(0);
}

// ---- sums over the inputs

struct Kept {
    template <class T>
    static constexpr T start = T(0);
    template <class T>
    static Vector<T> settle(Vector<T> sum) { return sum; }
};

struct Plain : Kept {
    template <class T>
    static Vector<T> add(Vector<T> sum, Vector<T> x, Vector<T> y) { return x * y + sum; }
};

// Angles in turns: whole turns are dropped now and then, exactly, so that the sum stays small and
// rounding does not grow with its size.
struct Turns : Plain {
    template <class T>
    static Vector<T> settle(Vector<T> sum) {
        return sum - ((sum + Lanes<T>::round) - Lanes<T>::round);
    }
};

struct Squares : Kept {
    template <class T>
    static Vector<T> add(Vector<T> sum, Vector<T> x, Vector<T> y) {
        const Vector<T> difference = x - y;
        return difference * difference + sum;
    }
};

struct Magnitudes : Kept {
    template <class T>
    static Vector<T> add(Vector<T> sum, Vector<T> x, Vector<T> y) {
        return sum + magnitude<T>(x - y);
    }
};

struct Factors : Kept {
    template <class T>
    static constexpr T start = T(1);
    template <class T>
    static Vector<T> add(Vector<T> product, Vector<T> x, Vector<T> y) {
        const Vector<T> difference = x - y;
        return product * (difference * difference + T(1));
    }
};

template <class Sum, class T, std::size_t apart = strip>
inline void tile(const T* const (&x)[tile_rows], const T* panel, std::size_t d, T* sums) {
    Vector<T> s[tile_rows][tile_vectors];
    for (int r = 0; r < tile_rows; ++r)
        for (int v = 0; v < tile_vectors; ++v) s[r][v] = all(Sum::template start<T>);
    for (std::size_t j = 0; j < d; ++j, panel += panel_width<T>) {
        if (j % settle_every == 0 && j > 0)
            for (int r = 0; r < tile_rows; ++r)
                for (int v = 0; v < tile_vectors; ++v) s[r][v] = Sum::template settle<T>(s[r][v]);
        Vector<T> y[tile_vectors];
        for (int v = 0; v < tile_vectors; ++v) y[v] = load(panel + v * lanes<T>);
        for (int r = 0; r < tile_rows; ++r) {
            const Vector<T> xr = all(x[r][j]);
            for (int v = 0; v < tile_vectors; ++v) s[r][v] = Sum::template add<T>(s[r][v], xr, y[v]);
        }
    }
    for (int r = 0; r < tile_rows; ++r)
        for (int v = 0; v < tile_vectors; ++v) store(sums + r * apart + v * lanes<T>, s[r][v]);
}

// ---- from sums to values

// Beyond it exp(-a) is 0, and a polynomial in front of it must not overflow to 0 times infinity.
template <class T>
inline Vector<T> capped(Vector<T> a) {
    return choose<T>(a > T(1000), all(T(1000)), a);
}

template <Op op, class T>
inline Vector<T> value(Vector<T> s, T p) {
    if constexpr (op == Op::phase) return cosine<T>(reduce<T>(s, p));
    else if constexpr (op == Op::gaussian) return power_of_two<T>(s * T(-0.72134752044448170368));
    else if constexpr (op == Op::exponential) return exp_negative<T>(-root<T>(s));
    else if constexpr (op == Op::matern32) {
        const Vector<T> a = capped<T>(root<T>(s) * T(1.7320508075688772935));
        return (a + T(1)) * exp_negative<T>(-a);
    } else if constexpr (op == Op::matern52) {
        const Vector<T> a = capped<T>(root<T>(s) * T(2.2360679774997896964));
        return (a * (a * T(1. / 3.) + T(1)) + T(1)) * exp_negative<T>(-a);
    } else if constexpr (op == Op::rational_quadratic)
        return exp_negative<T>(log_one_plus<T>(s * (T(0.5) / p)) * -p);
    else if constexpr (op == Op::laplace) return exp_negative<T>(-s);
    else return T(1) / s;  // cauchy
}

// `parts` lie task.m apart in the output: cosines and sines, or one value alone.
template <Op op>
constexpr int parts = op == Op::pair ? 2 : 1;

template <Op op, class T>
inline void evaluate(Vector<T> s, T p, Vector<T> (&v)[parts<op>]) {
    if constexpr (op == Op::pair) {
        const Reduced<T> a = reduce<T>(s, p);
        v[0] = cosine<T>(a);
        v[1] = sine<T>(a);
    } else {
        v[0] = value<op, T>(s, p);
    }
}

// Phases come after the sums: in front, all roundings of a sum would be those of a number near one.
template <Op op, class T>
inline Vector<T> shifted(const T* sums, const T* phase) {
    if constexpr (op == Op::phase) return load(sums) + load(phase);
    else return load(sums);
}

template <Op op, class T>
inline void finish(const T* sums, std::size_t n, T p, T* out, std::size_t m, const T* phase) {
    Vector<T> v[parts<op>];
    std::size_t k = 0;
    for (; k + lanes<T> <= n; k += lanes<T>) {
        evaluate<op, T>(shifted<op>(sums + k, phase + k), p, v);
        for (int i = 0; i < parts<op>; ++i) store<T>(out + i * m + k, v[i]);
    }
    if (k == n) return;
    evaluate<op, T>(shifted<op>(sums + k, phase + k), p, v);  // the last vector sticks out of the row
    for (int i = 0; i < parts<op>; ++i) std::memcpy(out + i * m + k, &v[i], (n - k) * sizeof(T));
}

// ---- the walk over rows and columns

inline std::size_t least(std::size_t a, std::size_t b) { return a < b ? a : b; }

// Columns whose packed panels stay in the level-2 cache while rows pass by.
template <class T>
inline std::size_t columns_at_a_time(std::size_t d) {
    constexpr std::size_t cache = 256 * 1024;
    const std::size_t fit = cache / ((d + 1) * sizeof(T)) / panel_width<T> * panel_width<T>;
    return fit < panel_width<T> ? panel_width<T> : least(fit, strip);
}

// Rows that stay in the level-3 cache while all columns pass by, a whole number of tiles.
template <class T>
inline std::size_t rows_at_a_time(std::size_t d) {
    constexpr std::size_t cache = 1024 * 1024;
    const std::size_t fit = cache / ((d + 1) * sizeof(T)) / tile_rows;
    return tile_rows * (fit < 1 ? 1 : least(fit, 32));
}

// Calls finish(sums, i, f, width) with the finished sums of row i and columns f to f + width.
template <class Sum, class T, class Kind, class Finish>
void walk(const Kind& task, std::size_t first, std::size_t last, const Finish& finish) {
    alignas(64) T sums[tile_rows * strip] = {};  // polynomials read a panel beyond those that are filled
    const T* x[tile_rows];
    const std::size_t columns = columns_at_a_time<T>(task.d), rows = rows_at_a_time<T>(task.d);
    for (std::size_t top = first; top < last; top += rows)
        for (std::size_t f = 0; f < task.m; f += columns)
            for (std::size_t i = top; i < least(top + rows, last); i += tile_rows) {
                const std::size_t width = least(columns, task.m - f);
                for (std::size_t r = 0; r < tile_rows; ++r)
                    x[r] = task.X + least(i + r, last - 1) * task.d;
                for (std::size_t k = 0; k < width; k += panel_width<T>)
                    tile<Sum, T>(x, task.columns + (f + k) * task.d, task.d, sums + k);
                for (std::size_t r = 0; r < tile_rows && i + r < last; ++r)
                    finish(sums + r * strip, i + r, f, width);
            }
}

template <Op op, class Sum, class T>
void values(const Task<T>& task, std::size_t first, std::size_t last) {
    walk<Sum, T>(task, first, last, [&](const T* sums, std::size_t i, std::size_t f, std::size_t width) {
        finish<op, T>(sums, width, task.scale, task.out + i * task.stride + f, task.m, task.phase + f);
    });
}

template <class T>
void run(const Task<T>& task, std::size_t first, std::size_t last, T*) {
    switch (task.op) {
        case Op::pair: return values<Op::pair, Turns, T>(task, first, last);
        case Op::phase: return values<Op::phase, Turns, T>(task, first, last);
#define BOCHNER_CASE(name, sum) \
        case Op::name: return values<Op::name, sum, T>(task, first, last);
        BOCHNER_PROFILES(BOCHNER_CASE)
#undef BOCHNER_CASE
    }
}

}  // namespace
