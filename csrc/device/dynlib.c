#define _GNU_SOURCE /* dladdr, dl_iterate_phdr, secure_getenv: -std=c11 */

#include "device/dynlib.h"

#include <ctype.h>
#include <dlfcn.h>
#ifdef __linux__
#include <link.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
variable_name(const ad_library *library, char *buffer, size_t size)
{
    snprintf(buffer, size, "ARROWDEV_%s_LIBRARY", library->name);
    for (char *p = buffer; *p != '\0'; p++) {
        *p = (char)toupper((unsigned char)*p);
    }
}

/* dlerror() includes the name that was asked for, so no name is added. */
static void
add_reason(char *reasons, size_t size)
{
    const char *reason = dlerror();
    size_t used = strlen(reasons);
    snprintf(reasons + used, size - used, "%s%s", used > 0 ? "; " : "",
             reason != NULL ? reason : "unknown reason");
}

/* Writes the name that was opened to `found`. RTLD_LOCAL keeps the symbols of
 * our copy out of other libraries' look-ups. */
static void *
open_any(const char *const *names, int flags, char *found, char *reasons,
         size_t size)
{
    for (; *names != NULL; names++) {
        void *handle = dlopen(*names, RTLD_NOW | RTLD_LOCAL | flags);
        if (handle != NULL) {
            snprintf(found, AD_LIBRARY_PATH_SIZE, "%s", *names);
            return handle;
        }
        if (reasons != NULL) {
            add_reason(reasons, size);
        }
        (void)dlerror();
    }
    return NULL;
}

#ifdef __linux__

typedef struct search {
    const char *soname;
    char *path; /* of the library found; starts empty */
} search;

/* Is it "libx-1a2b3c.so.6", for the soname "libx.so"? */
static int
is_renamed(struct dl_phdr_info *info, size_t size, void *argument)
{
    search *self = argument;
    const char *slash = strrchr(info->dlpi_name, '/');
    const size_t n_stem = (size_t)(strstr(self->soname, ".so") - self->soname);
    if (slash == NULL || strncmp(slash + 1, self->soname, n_stem) != 0 ||
        strchr("-.", slash[1 + n_stem]) == NULL ||
        strstr(slash + 1 + n_stem, ".so") == NULL) {
        return 0;
    }
    snprintf(self->path, AD_LIBRARY_PATH_SIZE, "%s", info->dlpi_name);
    return 1;
}

/* A library of a wheel that is in the process, or NULL. */
static void *
open_renamed(const char *soname, char *found)
{
    char path[AD_LIBRARY_PATH_SIZE] = "";
    search wanted = {soname, path};
    const char *const names[] = {path, NULL};
    return dl_iterate_phdr(is_renamed, &wanted) != 0
               ? open_any(names, RTLD_NOLOAD, found, NULL, 0)
               : NULL;
}

#else

static void *
open_renamed(const char *soname, char *found)
{
    return NULL;
}

#endif

static ad_status
open_library(const ad_library *library, void **out, char *found, ad_error *err)
{
    char variable[64];
    char reasons[320] = "";
    variable_name(library, variable, sizeof(variable));
    /* NULL in a program with more rights than the user who started it. */
    const char *override = secure_getenv(variable);
    if (override != NULL && override[0] != '\0') {
        const char *const names[] = {override, NULL};
        *out = open_any(names, 0, found, reasons, sizeof(reasons));
        if (*out == NULL) {
            ad_fail(err, AD_ERR_EXCHANGE, "runtime", NULL,
                    "the %s runtime that %s names cannot be loaded: %s",
                    library->name, variable, reasons);
            ad_error_hint(err, "correct or unset %s", variable);
            return AD_ERR_EXCHANGE;
        }
        return AD_OK;
    }
    *out = open_any(library->sonames, RTLD_NOLOAD, found, NULL, 0);
    if (*out == NULL && library->is_in_wheels) {
        *out = open_renamed(library->sonames[0], found);
    }
    if (*out == NULL) {
        *out = open_any(library->sonames, 0, found, reasons, sizeof(reasons));
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

/* The file that a symbol was loaded from. */
static void
find_path(const void *symbol, char *path)
{
    Dl_info info;
    if (dladdr(symbol, &info) != 0 && info.dli_fname != NULL) {
        snprintf(path, AD_LIBRARY_PATH_SIZE, "%s", info.dli_fname);
    }
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
        void *symbol = dlsym(opened, wanted->name);
        if (symbol == NULL && wanted->required) {
            return ad_fail(err, AD_ERR_EXCHANGE, "runtime",
                           "install a newer driver or runtime",
                           "%s has no symbol \"%s\", which the %s backend "
                           "needs",
                           where, wanted->name, library->name);
        }
        if (symbol != NULL && i == 0) {
            find_path(symbol, where);
        }
        memcpy((char *)api + wanted->offset, &symbol, sizeof(symbol));
    }
    if (path != NULL) {
        memcpy(path, where, sizeof(where));
    }
    return AD_OK;
}
