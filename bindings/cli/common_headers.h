// common_headers.h: precompiled for all files of the command.
#pragma once

#include <gsel/gsel.h>

#include <nlohmann/json.hpp>
