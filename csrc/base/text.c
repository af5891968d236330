#include "base/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"

void
ad_text_clear(ad_text *text)
{
    free(text->data);
    *text = (ad_text){0};
}

static ad_status
reserve(ad_text *text, size_t extra, ad_error *err)
{
    return ad_list_grow(&text->data, 1, text->length + extra + 1,
                        &text->capacity, err);
}

ad_status
ad_text_append_n(ad_text *text, const char *bytes, size_t n, ad_error *err)
{
    AD_RETURN_IF_ERR(reserve(text, n, err));
    memcpy(text->data + text->length, bytes, n);
    text->length += n;
    text->data[text->length] = '\0';
    return AD_OK;
}

ad_status
ad_text_append(ad_text *text, const char *string, ad_error *err)
{
    return ad_text_append_n(text, string, strlen(string), err);
}

ad_status
ad_text_printf(ad_text *text, ad_error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    AD_RETURN_IF_ERR(reserve(text, (size_t)n, err));
    va_start(args, format);
    vsnprintf(text->data + text->length, (size_t)n + 1, format, args);
    va_end(args);
    text->length += (size_t)n;
    return AD_OK;
}

const char *
ad_count_text(int64_t n, const char *one, const char *many,
              char buffer[AD_COUNT_SIZE])
{
    snprintf(buffer, AD_COUNT_SIZE, "%" PRId64 " %s", n, n == 1 ? one : many);
    return buffer;
}
