/* gsel/config.h: gsel.toml, the one file that says how a model is trained.
 *
 *     [select]            accelerator, devices, order
 *     [comm]              timeout_s
 *     [mesh]              tensor, context, data, pipeline: sizes of the axes; one may be "auto"
 *     [strategy.data]     plugin of the data axis, and the options of this plugin; likewise for other axes
 *     [train]             optimizer, learning_rate, ..., batch, microbatch, seed
 *
 * docs/config.md lists every key with type, default and meaning. An unknown key, a wrong type or an impossible
 * size is GSEL_ERR_CONFIG with file, line and key. Keys of a plugin are checked when the trainer loads it. */
#ifndef GSEL_CONFIG_H
#define GSEL_CONFIG_H

#include <gsel/error.h>

GSEL_EXTERN_C_BEGIN

typedef struct gsel_config gsel_config;

/* Loads and checks a file.
 *   path   borrowed; not given (data NULL) means the file that GSEL_CONFIG names in the environment, as `gsel run
 *          --config` sets it, or all defaults if GSEL_CONFIG is unset
 *   out    given to the caller, free with gsel_config_free; NULL on error
 * Errors: GSEL_ERR_ARG, GSEL_ERR_IO (unreadable), GSEL_ERR_PARSE (not TOML), GSEL_ERR_CONFIG (an unknown key or a wrong
 * value). Any thread. Since 0.1. */
GSEL_API gsel_status gsel_config_load(gsel_str path, gsel_config **out, gsel_error **err);

/* The same from text; messages use `name` in place of the file. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_config_parse(gsel_str text, gsel_str name, gsel_config **out, gsel_error **err);

/* Value of a key by its dotted name, such as "train.batch" or "mesh.data", as text: from the file, else the default.
 * Borrowed until gsel_config_free; data is NULL for an unknown key. Any thread. Since 0.1. */
GSEL_API gsel_str gsel_config_get(const gsel_config *config, gsel_str key);

/* Sets a key by its dotted name, as if the file had it: "train.batch" to "64", "mesh.data" to "auto",
 * "strategy.data.plugin" to "zero", "strategy.data.stage" to "2".
 *   value  as gsel_config_get returns it: text without quotes, an array in TOML notation, such as "[1, 2]". Not given:
 *          the key is removed and has its default again. Borrowed for the call
 * Errors: GSEL_ERR_ARG, GSEL_ERR_CONFIG as for a file, with the key; the config is then unchanged. Must not overlap
 * other calls with this config; objects made from the config earlier do not change. Since 0.1. */
GSEL_API gsel_status gsel_config_set(gsel_config *config, gsel_str key, gsel_str value, gsel_error **err);

/* Releases the config; NULL is fine. Objects made from a config keep what they need. Any thread. Since 0.1. */
GSEL_API void gsel_config_free(gsel_config *config);

GSEL_EXTERN_C_END

#endif
