/* The canonical form of a tensor-level program: one text for all programs that differ only in names.
 *
 * Dimension variables are numbered in the order in which inputs and then expressions mention them, inputs in their
 * declared order, expressions in the order of a walk from the outputs. So an implementation of one program, which takes
 * its inputs in order, is one of every program with the same text. */
#ifndef EF_TUNE_CANONICAL_H
#define EF_TUNE_CANONICAL_H

#include "ir/expr.h"

void ef_canonical_print(const ef_program *program, ef_strbuf *out);
/* 32 hexadecimal digits of a hash of it. */
void ef_canonical_hash(const ef_program *program, char hash[33]);

#endif
