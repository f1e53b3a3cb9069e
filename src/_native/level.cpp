// Compiled once for each instruction set, with its flags and its name.
#include "chains.hpp"
#include "loops.hpp"
#include "products.hpp"
#include "recurrence.hpp"

namespace {

template <class T>
constexpr bochner::Loops<T> loops = {panel_width<T>, pack<T>,        run<T>,
                                     hadamard<T>,    chains<T>,      polynomials<T>,
                                     harmonics<T>,   symmetric<T>};

}  // namespace

namespace bochner {

const Level& BOCHNER_LEVEL() {
    static const Level level = {BOCHNER_NAME, loops<float>, loops<double>};
    return level;
}

}  // namespace bochner
