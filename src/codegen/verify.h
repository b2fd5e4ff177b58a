/* Verification: a kernel graph's results against the float64 evaluator (design, section 7, "Numerics").
 *
 * Inputs are drawn, rounded to their types, and given to both sides. Errors are relative L2 over all outputs; an
 * infinity equals itself and NaN equals NaN, anything else that is not finite is infinitely wrong. */
#ifndef EF_CODEGEN_VERIFY_H
#define EF_CODEGEN_VERIFY_H

#include "codegen/execute.h"
#include "ir/eval.h"

/* How inputs are drawn: normal numbers; large and tiny ones; with rows of zeros; off centre, those that the program
 * adds up (ir/independent.h); with masks that blank whole rows. */
typedef enum {
    EF_DRAW_NORMAL,
    EF_DRAW_LARGE,
    EF_DRAW_TINY,
    EF_DRAW_ZERO,
    EF_DRAW_SHIFTED,
    EF_DRAW_MASKED,
    EF_DRAW_COUNT
} ef_draw;
extern const char *const ef_draw_names[EF_DRAW_COUNT];

/* Inputs and outputs of a graph in memory. */
typedef struct {
    uint32_t inputs, outputs;
    void **in, **out;
} ef_data;

ef_data ef_data_new(const ef_kgraph *graph, const ef_schedule *schedule);
void ef_data_free(ef_data *data);
/* How far inputs of a draw are from normal numbers: `unit` is what all are multiplied with, `scale` what they are
 * besides, or how far off centre the shifted ones are before. Weights are divided by the square root of what they are
 * contracted over, too. Integers are from 0 to 7 whatever the size. */
typedef struct {
    double unit, scale;
} ef_draw_size;
void ef_data_draw(const ef_kgraph *graph, const ef_schedule *schedule, ef_data *data, ef_draw draw, ef_draw_size size,
                  uint64_t seed);
/* Scales to try, one after the other, until the program as it is can compute with them: what overflows inside of it, or
 * hangs on the last bit of a score, is off by its own size and says nothing of a candidate. So its error is one that is
 * accepted of anything. Where inputs are far from normal ones it leaves room for twice as much, and as many outputs as
 * with normal inputs are in the range of their types: what does not overflow while most else does, is what cancels.
 * When no scale suits, that of the least error is taken. The one of the normal draw is the unit of all. Modules of
 * PyTorch have the same (codegen/torch.h), and their users the same rule. */
#define EF_DRAW_SCALES 5u
double ef_draw_scale(ef_draw draw, unsigned attempt);
bool ef_draw_is_far(ef_draw draw);
/* The largest error of the program as it is with which a scale suits. */
double ef_draw_error_limit(ef_draw draw);

/* What the program as it is makes of a scale. */
typedef struct {
    double error;
    uint64_t within; /* outputs that are in range */
} ef_drawn;
/* Draws inputs of a scale, by the number of the attempt, and computes with them. */
typedef bool (*ef_draw_try)(void *user, ef_draw draw, unsigned attempt, ef_drawn *drawn, ef_diag *diag);
/* Tries scales until one suits; what is tried last is what is taken. `normal`: outputs of the normal draw that are in
 * range. Gives the scale's number. False when an attempt fails. */
bool ef_draw_fit(ef_draw draw, uint64_t normal, ef_draw_try attempt, void *user, unsigned *taken, ef_drawn *drawn,
                 ef_diag *diag);

/* How many elements of the outputs are finite. */
uint64_t ef_data_finite(const ef_kgraph *graph, const ef_schedule *schedule, const ef_data *data);

/* An element of a buffer, exact; and the nearest one that its type has. */
double ef_element_get(ef_dtype dtype, const void *memory, uint64_t at);
void ef_element_put(ef_dtype dtype, void *memory, uint64_t at, double x);
/* Many at once. */
void ef_elements_get(ef_dtype dtype, const void *from, double *to, uint64_t count);

/* The program's outputs in float64, and how far `data`'s outputs are from them. */
typedef struct ef_reference ef_reference;
ef_reference *ef_reference_new(const ef_program *program, const ef_kgraph *graph, const ef_schedule *schedule,
                               const ef_data *data, ef_diag *diag);
/* The same from outputs that something else computed in float64: by output, `count[i]` elements. Copies nothing: they
 * must outlive the reference. */
ef_reference *ef_reference_computed(uint32_t outputs, double *const *output, const uint64_t *count);
void ef_reference_free(ef_reference *reference);
double ef_reference_error(const ef_reference *reference, const ef_kgraph *graph, const ef_data *data);

/* Adds the squares of differences of `count` elements of a type, and of the elements of `want`; and the relative L2
 * error that such sums are. */
void ef_reference_compare(ef_dtype dtype, const void *got, const void *want, uint64_t count, double *wrong,
                          double *size);
double ef_reference_ratio(double wrong, double size);

/* What an implementation's error may be, when that of eager is `eager` (see oracle.h). */
#define EF_ERROR_LIMIT 1e-2 /* relative L2, of anything */
#define EF_ERROR_FACTOR 2.0 /* times eager's */
#define EF_ERROR_FLOOR 4e-6 /* orders of summation differ by this in float32 */
double ef_error_bound(double eager);

#endif
