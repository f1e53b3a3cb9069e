// Features whose frequencies are products of Hadamard matrices and diagonals, so that n log n
// operations take the place of a matrix product.
#pragma once

#include "hadamard.hpp"
#include "loops.hpp"

namespace {

using bochner::Chains;

constexpr std::size_t rows_of_chain = 16;  // they pass a block's diagonals while these are near

// a <- the turns of one row and block, with `b` as room beside it.
template <class T>
inline const T* turns_of(const Chains<T>& task, const T* x, std::size_t block, T* a, T* b) {
    const T* diagonal = task.diagonals + block * (task.steps + 1) * task.p;
    for (std::size_t j = 0; j < task.d; ++j) a[j] = x[j] * diagonal[j];
    for (std::size_t j = task.d; j < task.p; ++j) a[j] = T(0);
    for (std::size_t step = 1; step <= task.steps; ++step) {
        transform<T>(a, a, task.p);
        diagonal += task.p;
        if (step == 1 && task.orders) {
            const std::int32_t* order = task.orders + block * task.p;
            for (std::size_t j = 0; j < task.p; ++j) b[j] = a[order[j]] * diagonal[j];
            std::swap(a, b);
        } else {
            for (std::size_t j = 0; j < task.p; ++j) a[j] *= diagonal[j];
        }
    }
    return a;
}

template <Op op, class T>
void chain(const Chains<T>& task, std::size_t first, std::size_t last, T* room) {
    T *a = room, *b = room + task.p + lanes<T>;
    for (std::size_t top = first; top < last; top += rows_of_chain)
        for (std::size_t f = 0, block = 0; f < task.m; f += task.p, ++block)
            for (std::size_t i = top; i < least(top + rows_of_chain, last); ++i)
                finish<op, T>(turns_of(task, task.X + i * task.d, block, a, b),
                              least(task.p, task.m - f), task.scale,
                              task.out + i * task.stride + f, task.m, task.phase + f);
}

template <class T>
void chains(const Chains<T>& task, std::size_t first, std::size_t last, T* room) {
    if (task.op == Op::pair) chain<Op::pair, T>(task, first, last, room);
    else chain<Op::phase, T>(task, first, last, room);
}

}  // namespace
