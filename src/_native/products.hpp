// Products with the symmetric matrix of kernel values of rows with one another. It is cut into strips
// of `span` columns, and strip s meets the rows up to its own end: each value off the diagonal blocks
// serves twice, as itself and transposed, and none leaves the level-1 cache. Sums within a block of
// span x span values are of the precision of the values, sums over blocks double.
#pragma once

#include "loops.hpp"

namespace {

using bochner::span;
using bochner::Symmetric;
using bochner::together;

template <class T>
inline void fill(T* numbers, std::size_t n, T value) {
    for (std::size_t k = 0; k < n; ++k) numbers[k] = value;
}

template <class T>
inline double total(Vector<T> v) {
    double sum = 0;
    for (std::size_t k = 0; k < lanes<T>; ++k) sum += double(v[k]);
    return sum;
}

// A tile of values times v goes to `along`, its transpose times w to `columns`.
template <class T>
inline void meet(const T* values, const T* v, const T* w, Vector<T> (&along)[tile_rows], T* columns) {
    for (int k = 0; k < tile_vectors; ++k) {
        const Vector<T> right = load(v + k * lanes<T>);
        Vector<T> down = load(columns + k * lanes<T>);
        for (int r = 0; r < tile_rows; ++r) {
            const Vector<T> value = load(values + (r * tile_vectors + k) * lanes<T>);
            along[r] = value * right + along[r];
            down = value * all(w[r]) + down;
        }
        store(columns + k * lanes<T>, down);
    }
}

// Rows i to i + count of a strip of columns that starts at f. Columns that pad the strip have zeros in
// V, and their own sums are nobody's.
template <Op op, class Sum, class T>
void row_of_tiles(const Symmetric<T>& task, const T* panels, std::size_t i, std::size_t count,
                  std::size_t f, bool twice, T* columns, double* out) {
    const T* x[tile_rows];
    for (std::size_t r = 0; r < tile_rows; ++r) x[r] = task.X + (i + least(r, count - 1)) * task.d;
    T w[together][tile_rows];
    Vector<T> along[together][tile_rows];
    for (std::size_t c = 0; c < task.t; ++c)
        for (std::size_t r = 0; r < tile_rows; ++r) {
            w[c][r] = twice && r < count ? task.V[c * task.padded + i + r] : T(0);
            along[c][r] = Vector<T>{};
        }
    for (std::size_t k = 0; k < span && f + k < task.n; k += panel_width<T>) {
        alignas(64) T values[tile_rows * panel_width<T>];
        tile<Sum, T, panel_width<T>>(x, panels + k * task.d, task.d, values);
        for (std::size_t e = 0; e < tile_rows * panel_width<T>; e += lanes<T>)
            store(values + e, value<op, T>(load(values + e), task.parameter));
        for (std::size_t c = 0; c < task.t; ++c)
            meet<T>(values, task.V + c * task.padded + f + k, w[c], along[c], columns + c * span + k);
    }
    for (std::size_t c = 0; c < task.t; ++c)
        for (std::size_t r = 0; r < count; ++r) out[c * task.padded + i + r] += total<T>(along[c][r]);
}

template <Op op, class Sum, class T>
void strip_product(const Symmetric<T>& task, std::size_t s, T* room, double* out) {
    const std::size_t f = s * span;
    T *panels = room, *columns = panels + span * task.d;
    pack<T>(task.X + f * task.d, task.d, least(span, task.n - f), 1, task.d, panels);
    for (std::size_t top = 0; top <= f; top += span) {
        const std::size_t stop = least(top + span, task.n);
        fill(columns, task.t * span, T(0));
        for (std::size_t i = top; i < stop; i += tile_rows)
            row_of_tiles<op, Sum, T>(task, panels, i, least(tile_rows, stop - i), f, top < f,
                                     columns, out);
        for (std::size_t c = 0; c < task.t; ++c)
            for (std::size_t k = 0; k < span; ++k)
                out[c * task.padded + f + k] += double(columns[c * span + k]);
    }
}

template <class T>
void symmetric(const Symmetric<T>& task, std::size_t s, T* room, double* out) {
    switch (task.op) {
        case Op::pair: case Op::phase: return;
#define BOCHNER_CASE(name, sum) \
        case Op::name: return strip_product<Op::name, sum, T>(task, s, room, out);
        BOCHNER_PROFILES(BOCHNER_CASE)
#undef BOCHNER_CASE
    }
}

}  // namespace
