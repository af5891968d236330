#include "base/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/arrow_c.h"

static const struct {
    int32_t type;
    const char *name;
} device_types[] = {
#define AD_DEVICE_TYPE(tag, value, name, traits) {value, name},
#include "base/device_types.def"
#undef AD_DEVICE_TYPE
};

#define N_DEVICE_TYPES (sizeof(device_types) / sizeof(device_types[0]))

const char *
ad_device_type_name(int32_t type)
{
    for (size_t i = 0; i < N_DEVICE_TYPES; i++) {
        if (device_types[i].type == type) {
            return device_types[i].name;
        }
    }
    return NULL;
}

const char *
ad_device_format(ad_device device, char *buffer)
{
    const char *name = ad_device_type_name(device.type);
    char number[24];
    if (name == NULL) {
        snprintf(number, sizeof(number), "device(%" PRId32 ")", device.type);
        name = number;
    }
    if (device.type == ARROW_DEVICE_CPU || device.id == -1) {
        snprintf(buffer, AD_DEVICE_NAME_SIZE, "%s", name);
    } else {
        snprintf(buffer, AD_DEVICE_NAME_SIZE, "%s:%" PRId64, name, device.id);
    }
    return buffer;
}

/* Names are lower-case letters and underscores. `text` may go on. */
static bool
is_same_name(const char *text, const char *name)
{
    while (*name != '\0' && (*text >= 'A' && *text <= 'Z' ? *text - 'A' + 'a'
                                                          : *text) == *name) {
        text++;
        name++;
    }
    return *name == '\0';
}

bool
ad_device_parse(const char *text, ad_device *out)
{
    const char *colon = strchr(text, ':');
    size_t length = colon != NULL ? (size_t)(colon - text) : strlen(text);
    int64_t id = 0;
    if (colon != NULL) {
        size_t n_digits = strspn(colon + 1, "0123456789");
        if (n_digits == 0 || n_digits > 9 || colon[1 + n_digits] != '\0') {
            return false;
        }
        id = strtol(colon + 1, NULL, 10);
    }
    for (size_t i = 0; i < N_DEVICE_TYPES; i++) {
        const char *name = device_types[i].name;
        if (strlen(name) == length && is_same_name(text, name)) {
            out->type = device_types[i].type;
            out->id = out->type == ARROW_DEVICE_CPU ? -1 : id;
            return out->type != ARROW_DEVICE_CPU || id == 0;
        }
    }
    return false;
}

const uint16_t ad_traits_of_device_types[AD_N_DEVICE_TYPES] = {
#define AD_DEVICE_TYPE(tag, value, name, traits) [value] = traits,
#include "base/device_types.def"
#undef AD_DEVICE_TYPE
};

bool
ad_streams_are_alike(int32_t device_type, int32_t other)
{
    uint32_t common = ad_device_traits(device_type) & ad_device_traits(other);
    return device_type == other ||
           (common & (AD_CUDA_STREAMS | AD_ROCM_STREAMS)) != 0;
}

bool
ad_device_type_reaches(int32_t from, int32_t found)
{
    return from == found ||
           ((ad_device_traits(found) & AD_HOST_READS) != 0 &&
            (from == ARROW_DEVICE_CPU || ad_streams_are_alike(from, found)));
}

bool
ad_device_is_another_name(ad_device found, ad_device wanted)
{
    return ad_host_accessible(found) && !ad_host_accessible(wanted) &&
           ad_streams_are_alike(found.type, wanted.type) &&
           found.id == wanted.id;
}

ad_device
ad_device_of_copy(ad_device source, ad_device target)
{
    return ad_device_equal(target, AD_CPU) ? source : target;
}
