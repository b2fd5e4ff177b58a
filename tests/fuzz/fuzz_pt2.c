/* libFuzzer entry for `.pt2` archives. An input that begins like a zip file is one; any other is the JSON of a program,
 * which is put into an archive that is right otherwise, because no fuzzer guesses a checksum. Whatever is read must
 * be consistent: values are in range, and the bytes of every input can be asked for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/exported.h"
#include "support/archive.h"
#include "support/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char path[64];

static void write_input(const uint8_t *data, size_t size)
{
    static const char weights[] =
        "{\"config\": {\"w\": {\"path_name\": \"weight_0\", \"is_param\": true, \"use_pickle\": false, "
        "\"tensor_meta\": "
        "{\"dtype\": 7, \"sizes\": [{\"as_int\": 2}, {\"as_int\": 3}], \"requires_grad\": true, \"device\": {\"type\": "
        "\"cpu\", \"index\": null}, \"strides\": [{\"as_int\": 1}, {\"as_int\": 2}], \"storage_offset\": {\"as_int\": "
        "0}, \"layout\": 7}}}}";
    static const char constants[] = "{\"config\": {}}";
    const ef_archive_entry entries[] = {
        {"m/archive_format", "pt2", 3},
        {"m/data/weights/model_weights_config.json", weights, sizeof weights - 1},
        {"m/data/weights/weight_0", "012345678901234567890123", 24},
        {"m/data/constants/model_constants_config.json", constants, sizeof constants - 1},
        {"m/models/model.json", data, size},
    };
    ef_diag diag = {0};
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%.30s/fuzz_%ld.pt2", folder ? folder : "/tmp", (long)getpid());
    bool zip = size > 4 && memcmp(data, "PK\3\4", 4) == 0;
    if (!(zip ? ef_write_file(path, data, size, &diag) : ef_archive_write(path, entries, 5, &diag)))
        abort();
}

static void check_value(const ef_exported *p, uint32_t value)
{
    if (value != EF_NONE && value >= p->values)
        abort();
}

static void check_argument(const ef_exported *p, const ef_xarg *a)
{
    if (a->kind == EF_XA_TENSOR || a->kind == EF_XA_SYM)
        check_value(p, a->value);
    for (uint32_t i = 0; a->values && i < a->count; i++)
        check_value(p, a->values[i]);
}

static void check_data(ef_exported *p, uint32_t input)
{
    ef_diag diag = {0};
    if (p->input[input].value == EF_NONE)
        return;
    check_value(p, p->input[input].value);
    const ef_xvalue *v = &p->value[p->input[input].value];
    uint64_t size = ef_xvalue_elements(v) * ef_xscalars[v->dtype].bytes;
    if (size > 1 << 20)
        return;
    void *room = malloc(size + 1);
    if (!ef_exported_data(p, input, room, size, &diag) && !diag.failed)
        abort();
    free(room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ef_diag diag = {0};
    write_input(data, size);
    ef_exported *p = ef_exported_read(path, &diag);
    if (!p && (!diag.failed || strncmp(diag.text, path, strlen(path)) != 0 || strchr(diag.text, '\n')))
        abort();
    for (uint32_t i = 0; p && i < p->inputs; i++)
        check_data(p, i);
    for (uint32_t i = 0; p && i < p->nodes; i++) {
        for (uint32_t j = 0; j < p->node[i].args; j++)
            check_argument(p, &p->node[i].arg[j]);
        for (uint32_t j = 0; j < p->node[i].outputs; j++)
            check_argument(p, &p->node[i].output[j]);
    }
    for (uint32_t i = 0; p && i < p->outputs; i++)
        check_value(p, p->output[i].value);
    ef_exported_free(p);
    unlink(path);
    return 0;
}
