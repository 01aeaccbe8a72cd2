// base/common_headers.h: precompiled headers of other libraries that nearly every file of the library needs. Each file
// still includes what it uses.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
