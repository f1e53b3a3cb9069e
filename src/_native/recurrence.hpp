// Three-term recurrences: sums of orthogonal polynomials of inner products, and spherical harmonics
// times radial factors. As in loops.hpp, no bit depends on how rows are grouped.
#pragma once

#include "loops.hpp"

namespace {

using bochner::Harmonics;
using bochner::Polynomials;

// ---- sums of orthogonal polynomials

template <class T>
inline Vector<T> cosine_of(Vector<T> t) {
    const Vector<T> below = choose<T>(t > T(1), all(T(1)), t);
    return choose<T>(below < T(-1), all(T(-1)), below);
}

// Vectors that pass the recurrence at once: enough to hide its latency, few enough for registers.
constexpr int side_by_side = vector_bytes == 64 ? 4 : 2;

// `functions` sums of one row, for n columns; `h` holds their coefficients.
template <int functions, class T>
void sums_of_row(const Polynomials<T>& task, const T* cosines, std::size_t n, const T* h, T* out) {
    constexpr std::size_t step = side_by_side * lanes<T>;
    Vector<T> t[side_by_side], p[side_by_side], before[side_by_side], sum[functions][side_by_side];
    for (std::size_t k = 0; k < n; k += step) {
        for (int v = 0; v < side_by_side; ++v) {
            t[v] = cosine_of<T>(load(cosines + k + v * lanes<T>));
            p[v] = all(T(1));
            before[v] = Vector<T>{};
            for (int f = 0; f < functions; ++f) sum[f][v] = all(h[f * (task.degree + 1)]);
        }
        for (std::size_t l = 0; l < task.degree; ++l)
            for (int v = 0; v < side_by_side; ++v) {
                const Vector<T> next = t[v] * task.up[l] * p[v] - before[v] * task.down[l];
                before[v] = p[v];
                p[v] = next;
                for (int f = 0; f < functions; ++f)
                    sum[f][v] = p[v] * h[f * (task.degree + 1) + l + 1] + sum[f][v];
            }
        for (int f = 0; f < functions; ++f)
            std::memcpy(out + f * task.m + k, &sum[f], (n - k < step ? n - k : step) * sizeof(T));
    }
}

template <class T>
void polynomials_of_row(const Polynomials<T>& task, const T* cosines, std::size_t n, std::size_t row,
                        T* out) {
    const std::size_t terms = task.degree + 1;
    const T* h = task.radial + row * task.functions * terms;
    std::size_t f = 0;
    for (; f + 2 <= task.functions; f += 2)
        sums_of_row<2, T>(task, cosines, n, h + f * terms, out + f * task.m);
    if (f < task.functions) sums_of_row<1, T>(task, cosines, n, h + f * terms, out + f * task.m);
}

template <class T>
void polynomials(const Polynomials<T>& task, std::size_t first, std::size_t last, T*) {
    walk<Plain, T>(task, first, last, [&](const T* sums, std::size_t i, std::size_t f, std::size_t width) {
        polynomials_of_row(task, sums, width, i, task.out + i * task.stride + f);
    });
}

// ---- spherical harmonics times radial factors

constexpr std::size_t abreast = bochner::abreast;  // rows that go through the recurrence together

// Coordinates, then their cumulative sums of squares: (2 d, abreast).
template <class T>
void inputs_of_rows(const Harmonics<T>& task, std::size_t i, std::size_t last, T* w) {
    for (std::size_t r = 0; r < abreast; ++r) {
        const T* u = task.X + least(i + r, last - 1) * task.d;
        T square = T(0);
        for (std::size_t j = 0; j < task.d; ++j) {
            square = u[j] * u[j] + square;
            w[j * abreast + r] = u[j];
            w[(task.d + j) * abreast + r] = square;
        }
    }
}

template <class T>
void harmonics_of_rows(const Harmonics<T>& task, const T* w, T* v) {
    for (std::size_t k = 0; k < abreast; ++k) v[k] = T(1);
    for (std::size_t node = 1; node < task.nodes; ++node) {
        const std::int32_t *p = task.parents + 2 * node, *u = task.inputs + 2 * node;
        const T* c = task.factors + 2 * node;
        for (std::size_t k = 0; k < abreast; k += lanes<T>) {
            const Vector<T> one = load(w + u[0] * abreast + k) * load(v + p[0] * abreast + k) * c[0];
            const Vector<T> two = load(w + u[1] * abreast + k) * load(v + p[1] * abreast + k);
            store<T>(v + node * abreast + k, two * c[1] + one);
        }
    }
}

// Blocks are written one after the other, each a little too wide: the next one covers it.
template <class T>
void products_of_row(const Harmonics<T>& task, const T* radial, const T* y, T* row) {
    for (std::size_t b = 0; b < task.blocks; ++b) {
        const T* from = y + task.first[b];
        const std::size_t count = std::size_t(task.count[b]);
        for (std::size_t k = 0; k < count; k += lanes<T>)
            store<T>(row + k, load(from + k) * radial[b]);
        row += count;
    }
}

template <class T>
void harmonics(const Harmonics<T>& task, std::size_t first, std::size_t last, T* room) {
    const std::size_t padded = task.nodes + abreast;
    T* const w = room;
    T* const v = w + 2 * task.d * abreast;
    T* const y = v + task.nodes * abreast;
    T* const row = y + abreast * padded;
    for (std::size_t i = first; i < last; i += abreast) {
        inputs_of_rows(task, i, last, w);
        harmonics_of_rows(task, w, v);
        for (std::size_t node = 0; node < task.nodes; ++node)
            for (std::size_t k = 0; k < abreast; ++k) y[k * padded + node] = v[node * abreast + k];
        for (std::size_t r = 0; r < abreast && i + r < last; ++r) {
            products_of_row(task, task.radial + (i + r) * task.blocks, y + r * padded, row);
            std::memcpy(task.out + (i + r) * task.stride, row, task.width * sizeof(T));
        }
    }
}

}  // namespace
