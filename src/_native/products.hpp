// Products with the symmetric matrix of kernel values of rows with one another. It is cut into strips
// of `span` columns, and strip s meets the rows up to its own end: each value off the diagonal blocks
// serves twice, as itself and transposed, and none leaves the level-1 cache. Sums within a block of
// span x span values are of the precision of the values, sums over blocks double.
#pragma once

#include "loops.hpp"

namespace {

using bochner::span;
using bochner::Symmetric;

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

// tile_rows rows of values times v go to `rows`, their transpose times w to `columns`.
template <class T>
inline void meet(const T* values, const T* v, const T (&w)[tile_rows], std::size_t count, T* columns,
                 double* rows) {
    Vector<T> along[tile_rows], across[tile_rows];
    for (int r = 0; r < tile_rows; ++r) along[r] = Vector<T>{}, across[r] = all(w[r]);
    for (std::size_t k = 0; k < span; k += lanes<T>) {
        const Vector<T> right = load(v + k);
        Vector<T> down = load(columns + k);
        for (int r = 0; r < tile_rows; ++r) {
            const Vector<T> value = load(values + r * span + k);
            along[r] = value * right + along[r];
            down = value * across[r] + down;
        }
        store(columns + k, down);
    }
    for (std::size_t r = 0; r < count; ++r) rows[r] += total<T>(along[r]);
}

// The block of rows from `top` on: into the sums of these rows and, off the diagonal, of its columns.
template <Op op, class Sum, class T>
void block(const Symmetric<T>& task, Task<T> strip, std::size_t top, std::size_t f, T* columns,
           double* out) {
    const std::size_t stop = least(top + span, task.n), ld = task.padded;
    fill(columns, task.t * span, T(0));
    for (std::size_t i = top; i < stop; i += tile_rows) {
        const std::size_t count = least(tile_rows, stop - i);
        strip.X = task.X + i * task.d;
        tile_row<op, Sum, T>(strip, 0, count, 0, strip.m);
        for (std::size_t c = 0; c < task.t; ++c) {
            T w[tile_rows] = {};
            for (std::size_t r = 0; r < count && top < f; ++r) w[r] = task.V[c * ld + i + r];
            meet<T>(strip.out, task.V + c * ld + f, w, count, columns + c * span, out + c * ld + i);
        }
    }
    for (std::size_t c = 0; c < task.t; ++c)
        for (std::size_t k = 0; k < span; ++k) out[c * ld + f + k] += double(columns[c * span + k]);
}

template <Op op, class Sum, class T>
void strip_product(const Symmetric<T>& task, std::size_t s, T* room, double* out) {
    const std::size_t f = s * span, width = least(span, task.n - f);
    T *panels = room, *start = panels + span * task.d, *values = start + span;
    T* columns = values + tile_rows * span;
    pack<T>(task.X + f * task.d, task.d, width, 1, task.d, panels);
    fill(start, span, task.start);
    fill(values, tile_rows * span, T(0));  // what no row or column fills must be finite
    const Task<T> strip{op, nullptr, tile_rows, task.d, width, panels, start, start,
                        task.parameter, values, span};
    for (std::size_t top = 0; top <= f; top += span)
        block<op, Sum, T>(task, strip, top, f, columns, out);
}

template <class T>
void symmetric(const Symmetric<T>& task, std::size_t s, T* room, double* out) {
    switch (task.op) {
        case Op::pair: case Op::phase: return;
        case Op::gaussian:
        case Op::quick: return strip_product<Op::quick, Squares, T>(task, s, room, out);
        case Op::exponential: return strip_product<Op::exponential, Squares, T>(task, s, room, out);
        case Op::matern32: return strip_product<Op::matern32, Squares, T>(task, s, room, out);
        case Op::matern52: return strip_product<Op::matern52, Squares, T>(task, s, room, out);
        case Op::rational_quadratic:
            return strip_product<Op::rational_quadratic, Squares, T>(task, s, room, out);
        case Op::laplace: return strip_product<Op::laplace, Magnitudes, T>(task, s, room, out);
        case Op::cauchy: return strip_product<Op::cauchy, Factors, T>(task, s, room, out);
    }
}

}  // namespace
