// common_headers.h: the precompiled header of the command.
#pragma once

#include <gsel/gsel.h>

#include <nlohmann/json.hpp>
