// common_headers.h: precompiled for all files of the command. The JSON classes are instantiated once, in
// json_classes.cc.
#pragma once

#include <gsel/gsel.h>

#include <nlohmann/json.hpp>

extern template class nlohmann::basic_json<>;
extern template class nlohmann::basic_json<nlohmann::ordered_map>;
