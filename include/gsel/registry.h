/* gsel/registry.h: lists plugins, with the reason if one was refused.
 * Search order: GSEL_PLUGIN_PATH (absolute folders joined by ':'; ignored with elevated privileges), then the folder
 * gsel/plugins-1 next to libgsel's own file, which is `pkg-config --variable=plugindir gsel` once installed. The
 * current directory and the system's library path are never searched. A plugin's file and every folder above it must be
 * owned by root or the effective user, and must not be writable by others. In the folder next to libgsel, the owner of
 * libgsel's own file is accepted too.
 * To load one plugin, the folders are searched in order, in each first the file NAME.so. Only this plugin's probe runs,
 * so a program that trains on the CPU loads no driver of an accelerator.
 * Plugins that the program registers (gsel_plugin_register) take precedence over all folders. */
#ifndef GSEL_REGISTRY_H
#define GSEL_REGISTRY_H

#include <gsel/error.h>

GSEL_EXTERN_C_BEGIN

struct gsel_plugin_v1; /* gsel/plugin.h */

/* Registers a plugin that is linked into the program, so that its file is not needed. From then on this process uses it
 * for its kind and name. gsel/strategies.h names the plugins of libgsel_plugins.a.
 *   plugin  kept until the process ends, with everything it points to
 * Registering a plugin again has no effect. GSEL_ERR_ARG: plugin is NULL. GSEL_ERR_PLUGIN: its tables are not accepted;
 * the message says why. GSEL_ERR_STATE: another plugin of this kind and name is registered. Errors change nothing. Its
 * probe runs when the plugin is used. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_plugin_register(const struct gsel_plugin_v1 *plugin, gsel_error **err);

typedef struct gsel_plugin_list gsel_plugin_list;

/* One candidate. Text is borrowed until gsel_plugin_list_free. */
typedef struct gsel_plugin_info {
  uint32_t struct_size;
  uint32_t reserved;
  gsel_str path;     /* absolute; empty for a plugin that the program registered */
  gsel_str kind;     /* "strategy", "device", "transport"; empty when unknown */
  gsel_str name;     /* "ddp"; empty when unknown */
  gsel_str version;
  gsel_str refusal;  /* why it was refused; empty when it is usable */
  gsel_str note;     /* what the library that it wraps has, such as NCCL; empty: it has nothing to say */
} gsel_plugin_info;
#define GSEL_PLUGIN_INFO_INIT GSEL_STRUCT_INIT(gsel_plugin_info)
GSEL_API void gsel_plugin_info_init(gsel_plugin_info *info, size_t struct_size);

/* Lists every registered plugin, in the order of registration, and every candidate on the search path, in order, each
 * folder sorted by name. Folders that cannot be used (relative, missing, writable by others) are listed as refused
 * candidates. Runs the probe of every plugin: the probes of "cuda" and "nccl" load NVIDIA's libraries and start the
 * driver, which stay until the process ends. A program that later forks or sets CUDA_VISIBLE_DEVICES makes this call in
 * a child process.
 *   out  given to the caller, free with gsel_plugin_list_free. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_plugin_list_create(gsel_plugin_list **out, gsel_error **err);

/* Number of candidates; candidate i. GSEL_ERR_ARG. Any thread. Since 0.1. */
GSEL_API int32_t gsel_plugin_list_count(const gsel_plugin_list *list);
GSEL_API gsel_status gsel_plugin_list_get(const gsel_plugin_list *list, int32_t i, gsel_plugin_info *info,
                                          gsel_error **err);

/* Releases; NULL is fine. Since 0.1. */
GSEL_API void gsel_plugin_list_free(gsel_plugin_list *list);

GSEL_EXTERN_C_END

#endif
