/* The bytes of parameters, buffers and constants: see pt2.h.
 *
 * An entry of the archive is one storage: all the memory that one or more tensors are views of. The payload
 * configuration says for each name which entry, and with which sizes, strides and offset the tensor lies in it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/pt2.h"

/* The position of the last element plus one; 0 when there are no elements. Cannot overflow: see extent_fine. */
static uint64_t reach(const ef_xvalue *v, const int64_t *stride)
{
    uint64_t last = 0;
    for (uint32_t i = 0; i < v->rank; i++) {
        if (v->size[i] <= 0)
            return 0;
        last += ((uint64_t)v->size[i] - 1) * (uint64_t)stride[i];
    }
    return last + 1;
}

static bool same_shape(const ef_xvalue *a, const ef_xvalue *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && memcmp(a->size, b->size, a->rank * sizeof *a->size) == 0;
}

/* The payload of a name is in the entry `path` of one folder. */
static bool place_in(pt2_reader *r, json_t *payload, const char *folder, ef_xinput *input)
{
    char full[512];
    json_t *meta = json_object_get(payload, "tensor_meta"), *offset = json_object_get(meta, "storage_offset");
    const ef_xvalue *value = &r->values.at[input->value];
    ef_xvalue stored = {.name = value->name, .dtype = EF_X_FLOAT32};
    int64_t first = 0;
    const char *path = pt2_string(r, payload, "path_name");
    if (!path)
        return false;
    if (!json_is_false(json_object_get(payload, "use_pickle")))
        return pt2_fail(r, "'%.80s' is a tensor subclass, whose bytes are pickled; export a module of plain tensors",
                        input->target);
    if (!pt2_tensor_meta(r, meta, &stored) || !pt2_integer(r, json_object_get(offset, "as_int"), &first))
        return false;
    if (!same_shape(value, &stored) || stored.symbolic)
        return pt2_fail(r, "'%.80s' differs from its bytes in shape or type", input->target);
    snprintf(full, sizeof full, "%s%s%s", r->store->root, folder, path);
    uint32_t entry = ef_archive_find(r->store->archive, full);
    if (entry == EF_NONE)
        return pt2_fail(r, "the entry '%.100s%.100s' is missing", folder, path);
    uint64_t bytes = ef_xscalars[stored.dtype].bytes, size = ef_archive_size(r->store->archive, entry);
    for (uint32_t i = 0; i < stored.rank; i++)
        if (stored.stride[i] < 0)
            return pt2_fail(r, "'%.80s' has a stride that is not known", input->target);
    if (first < 0 || (uint64_t)first > EF_MAX_EXTENT)
        return pt2_fail(r, "'%.80s' begins at an impossible place", input->target);
    if (size == 0) /* saved without weights, or without elements */
        return true;
    if (stored.strided && ((uint64_t)first + reach(&stored, stored.stride)) * bytes > size)
        return pt2_fail(r, "'%.80s' goes beyond its %llu bytes", input->target, (unsigned long long)size);
    input->entry = pt2_copy(r, full + strlen(r->store->root));
    input->offset = (uint64_t)first * bytes;
    input->stride = stored.stride;
    return true;
}

bool pt2_payload(pt2_reader *r, const char *target, ef_xinput *input)
{
    json_t *weight = json_object_get(r->weights, target), *constant = json_object_get(r->constants, target);
    if (input->value == EF_NONE)
        return pt2_fail(r, "'%.80s' is no tensor", target);
    if (weight)
        return place_in(r, weight, "data/weights/", input);
    return !constant || place_in(r, constant, "data/constants/", input);
}

/* ---- access ---- */

uint64_t ef_xvalue_elements(const ef_xvalue *value)
{
    uint64_t elements = value->kind == EF_XV_TENSOR;
    for (uint32_t i = 0; i < value->rank; i++)
        elements *= value->size[i] > 0 ? (uint64_t)value->size[i] : 0;
    return elements;
}

/* Gathers a strided tensor from `in` into row-major order. */
static void gather(const ef_xvalue *v, const int64_t *stride, const char *in, char *out)
{
    int64_t index[EF_X_MAX_RANK] = {0};
    size_t bytes = ef_xscalars[v->dtype].bytes;
    uint64_t at = 0;
    for (uint64_t left = ef_xvalue_elements(v); left; left--, out += bytes) {
        memcpy(out, in + at * bytes, bytes);
        for (uint32_t d = v->rank; d-- > 0;) {
            at += (uint64_t)stride[d];
            if (++index[d] < v->size[d])
                break;
            at -= (uint64_t)stride[d] * (uint64_t)v->size[d];
            index[d] = 0;
        }
    }
}

static bool row_major(const ef_xvalue *v, const int64_t *stride)
{
    int64_t expected = 1;
    for (uint32_t d = v->rank; d-- > 0; expected *= v->size[d])
        if (v->size[d] != 1 && stride[d] != expected)
            return false;
    return true;
}

bool ef_exported_data(ef_exported *program, uint32_t input, void *out, uint64_t size, ef_diag *diag)
{
    pt2_store *store = program->store;
    const ef_xinput *in = &program->input[input];
    const ef_xvalue *v = in->value == EF_NONE ? NULL : &program->value[in->value];
    char full[512];
    if (!v || !in->entry || !v->strided)
        return ef_fail(diag, "%.300s: has no bytes for input %u '%.80s'", store->path, input, in->target);
    uint64_t bytes = ef_xscalars[v->dtype].bytes, span = reach(v, in->stride) * bytes;
    if (size != ef_xvalue_elements(v) * bytes)
        return ef_fail(diag, "%.300s: '%.80s' has not %llu bytes", store->path, in->target, (unsigned long long)size);
    snprintf(full, sizeof full, "%s%s", store->root, in->entry);
    uint32_t entry = ef_archive_find(store->archive, full);
    if (row_major(v, in->stride))
        return ef_archive_read(store->archive, entry, in->offset, out, size, diag);
    char *stored = ef_xcalloc(span, 1);
    bool fine = ef_archive_read(store->archive, entry, in->offset, stored, span, diag);
    if (fine)
        gather(v, in->stride, stored, out);
    free(stored);
    return fine;
}
