/* Random well-typed programs in text form, from every operator of the IR: pointwise operators, products with and
 * without a batch, reductions, softmax and norms, masks, transposes, reshapes, slices, concatenations, broadcasts,
 * positions, several outputs.
 *
 * Extents are small, primes among them, and must stay: algebra may use what they are. Arguments of exponentials,
 * logarithms and divisors are kept within bounds: what is tested is code, not the condition of a random formula. */
#ifndef EF_TESTS_GENERATE_H
#define EF_TESTS_GENERATE_H

#include <stdint.h>

#include "support/strbuf.h"

void generate_program(uint64_t seed, ef_strbuf *text);

#endif
