/* Requests to workers that more than one part of the driver makes (docs/workers.md). */
#ifndef EF_TUNE_REQUEST_H
#define EF_TUNE_REQUEST_H

#include <jansson.h>

#include "ir/expr.h"

#define EF_CHECK_ALL 99 /* distributions: all there are */

/* Prepare this program, in about so many seconds (0: any time): inputs, references, the time of the program as it is.
 * In `end_s` seconds nothing else will be measured any more (0: there is no such end). `reference`: see ef_device. */
json_t *ef_request_program(const ef_program *program, const char *reference, uint64_t seed, double seconds,
                           double end_s);

#endif
