#include "device/dynlib.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"

static void
variable_name(const ad_library *library, char *buffer, size_t size)
{
    snprintf(buffer, size, "ARROWDEV_%s_LIBRARY", library->name);
    for (char *p = buffer; *p != '\0'; p++) {
        *p = (char)toupper((unsigned char)*p);
    }
}

static void
add_reason(char *reasons, size_t size)
{
    size_t used = strlen(reasons);
    if (used > 0) {
        snprintf(reasons + used, size - used, "; ");
        used = strlen(reasons);
    }
    ad_dl_reason(reasons + used, size - used);
}

/* Writes the name that was opened to `found`. */
static void *
open_any(const char *const *names, bool is_loaded, char *found, char *reasons,
         size_t size)
{
    for (; *names != NULL; names++) {
        void *handle = ad_dl_open(*names, is_loaded);
        if (handle != NULL) {
            snprintf(found, AD_LIBRARY_PATH_SIZE, "%s", *names);
            return handle;
        }
        if (reasons != NULL) {
            add_reason(reasons, size);
        }
    }
    return NULL;
}

static ad_status
open_library(const ad_library *library, void **out, char *found, ad_error *err)
{
    char variable[64];
    char reasons[320] = "";
    variable_name(library, variable, sizeof(variable));
    const char *override = ad_os_variable(variable);
    if (override != NULL && override[0] != '\0') {
        const char *const names[] = {override, NULL};
        *out = open_any(names, false, found, reasons, sizeof(reasons));
        if (*out == NULL) {
            ad_fail(err, AD_ERR_EXCHANGE, "runtime", NULL,
                    "the %s runtime that %s names cannot be loaded: %s",
                    library->name, variable, reasons);
            ad_error_hint(err, "correct or unset %s", variable);
            return AD_ERR_EXCHANGE;
        }
        return AD_OK;
    }
    *out = open_any(library->sonames, true, found, NULL, 0);
    if (*out == NULL && library->is_in_wheels) {
        *out = ad_dl_open_renamed(library->sonames[0], found,
                                  AD_LIBRARY_PATH_SIZE);
    }
    if (*out == NULL) {
        *out =
            open_any(library->sonames, false, found, reasons, sizeof(reasons));
    }
    if (*out == NULL) {
        ad_fail(err, AD_ERR_EXCHANGE, "runtime", NULL,
                "the %s runtime cannot be loaded: %s", library->name, reasons);
        ad_error_hint(
            err, "%s, or name its library in the environment variable %s",
            library->advice != NULL ? library->advice : "install its driver",
            variable);
        return AD_ERR_EXCHANGE;
    }
    return AD_OK;
}

ad_status
ad_library_load(const ad_library *library, void *api, char *path,
                ad_error *err)
{
    void *opened;
    char where[AD_LIBRARY_PATH_SIZE];
    AD_RETURN_IF_ERR(open_library(library, &opened, where, err));
    for (size_t i = 0; i < library->n_symbols; i++) {
        const ad_symbol *wanted = &library->symbols[i];
        void *symbol = ad_dl_symbol(opened, wanted->name);
        if (symbol == NULL && wanted->required) {
            return ad_fail(err, AD_ERR_EXCHANGE, "runtime",
                           "install a newer driver or runtime",
                           "%s has no symbol \"%s\", which the %s backend "
                           "needs",
                           where, wanted->name, library->name);
        }
        if (symbol != NULL && i == 0) {
            ad_dl_path(symbol, where, sizeof(where));
        }
        memcpy((char *)api + wanted->offset, &symbol, sizeof(symbol));
    }
    if (path != NULL) {
        memcpy(path, where, sizeof(where));
    }
    return AD_OK;
}
