/* fuzz_inventory: the text of an inventory. What is taken must come out again as it went in, and every system and order
 * must cope with the machine it describes. */
#include <string.h>

#include "fuzz/fuzz.h"

#define TEXT(literal) \
  { literal, sizeof literal - 1 }

static gsel_inventory* parse(gsel_str text, gsel_status* status, gsel_error** err) {
  gsel_inventory* inventory = NULL;
  *status = gsel_inventory_parse(text, gsel_str_from("input"), &inventory, err);
  return inventory;
}

static void check_refusal(gsel_status status, const gsel_error* err, size_t size) {
  const gsel_str message = gsel_error_message(err);
  CLAIM(status == GSEL_ERR_PARSE, "%s: %s", gsel_status_name(status), message.data);
  for (size_t i = 0; i < message.len; ++i)
    CLAIM((unsigned char)message.data[i] >= 0x20, "a line break in: %s", message.data);
  CLAIM(message.len > 0 && message.len < 65536, "a message of %zu bytes", message.len);
  CLAIM(gsel_error_line(err) >= 0 && gsel_error_column(err) >= 0 && (size_t)gsel_error_column(err) <= size + 1,
        "line %d, column %d", gsel_error_line(err), gsel_error_column(err));
}

static void check_parts(const gsel_inventory* inventory) {
  for (int32_t i = 0; i < gsel_inventory_device_count(inventory); ++i) {
    gsel_device_info info = GSEL_DEVICE_INFO_INIT;
    CLAIM(gsel_inventory_device(inventory, i, &info, NULL) == GSEL_OK, "device %d", i);
    CLAIM(info.free_bytes <= info.memory_bytes && info.index >= 0, "device %d", i);
    for (int32_t p = 0; p < info.partition_count; ++p) {
      gsel_partition_info partition = GSEL_PARTITION_INFO_INIT;
      CLAIM(gsel_inventory_partition(inventory, i, p, &partition, NULL) == GSEL_OK, "partition %d of %d", p, i);
    }
  }
  for (int32_t host = 0; host < gsel_inventory_host_count(inventory); ++host) {
    CLAIM(gsel_inventory_host_name(inventory, host).len > 0, "host %d", host);
    for (int32_t i = 0; i < gsel_inventory_interconnect_count(inventory, host); ++i) {
      gsel_interconnect_info link = GSEL_INTERCONNECT_INFO_INIT;
      CLAIM(gsel_inventory_interconnect(inventory, host, i, &link, NULL) == GSEL_OK, "link %d of host %d", i, host);
      CLAIM(link.a < link.b, "link %d of host %d", i, host);
    }
  }
}

static void check_round_trip(const gsel_inventory* inventory) {
  const gsel_str json = gsel_inventory_json(inventory);
  CLAIM(json.len > 0 && gsel_inventory_text(inventory).len > 0, "no text");
  gsel_status status;
  gsel_error* err = NULL;
  gsel_inventory* again = parse(json, &status, &err);
  CLAIM(again, "what was written is not read: %s", gsel_error_message(err).data);
  CLAIM(!strcmp(gsel_inventory_json(again).data, json.data), "read again it is another: %s", json.data);
  gsel_inventory_free(again);
}

static void check_uses(const gsel_inventory* inventory) {
  static const char* const specs[] = {NULL, "all", "count:2 & free>=1GiB", "index:0 | none", "!busy & !name:*a*",
                                      "cpu"};
  static const char* const orders[] = {"pci", "fastest", "most_free", "near"};
  gsel_env_var env[] = {{TEXT("CUDA_VISIBLE_DEVICES"), TEXT("1,0")},
                        {TEXT("ROCR_VISIBLE_DEVICES"), TEXT("0,1")},
                        {TEXT("ZE_AFFINITY_MASK"), TEXT("0.0")}};
  gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
  options.inventory = inventory;
  options.env = env;
  for (size_t i = 0; i < sizeof specs / sizeof *specs; ++i) {
    options.n_env = i % 2 ? sizeof env / sizeof *env : 0;
    options.flags = i % 2 ? 0 : GSEL_RESOLVE_NO_ENV;
    options.devices = gsel_str_from(specs[i]);
    options.order = gsel_str_from(orders[i % 4]);
    check_resolve(&options);
  }
  options.devices = options.order = gsel_str_from(NULL);
  for (int32_t i = 0; i < gsel_compat_count(); ++i) {
    options.n_env = i % 2 ? sizeof env / sizeof *env : 0;
    options.flags = i % 2 ? 0 : GSEL_RESOLVE_NO_ENV;
    options.compat = gsel_compat_name(i);
    check_resolve(&options);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gsel_status status;
  gsel_error* err = NULL;
  gsel_inventory* inventory = parse((gsel_str){(const char*)data, size}, &status, &err);
  if (inventory) {
    check_parts(inventory);
    check_round_trip(inventory);
    check_uses(inventory);
  } else {
    check_refusal(status, err, size);
  }
  gsel_error_free(err);
  gsel_inventory_free(inventory);
  return 0;
}
