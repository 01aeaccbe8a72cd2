// base/error.h: failure inside the library is an exception of one class; lib/api turns it into a status and an object
// that the caller owns. The code that knows most writes the text: one line, lower case, without a full stop. The text
// says what was asked, what was found, and what would work.
#pragma once

#include <fmt/format.h>
#include <gsel/error.h>

#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace gsel {

// The place in an input that a failure is about.
struct Place {
  std::string file;
  int32_t line = 0;    // from 1, 0 unknown
  int32_t column = 0;  // from 1, 0 unknown
  std::string token;   // key or token
};

// Prefix of a message: "file:line: ", the file alone, or nothing, depending on what is known.
std::string place_prefix(const Place& place);

class Error : public std::exception {
 public:
  Error(gsel_status code, std::string message) : code_(code), message_(std::move(message)) {}

  // Adds what the error is about; each returns the error so that `throw Error(...).at(...)` reads well.
  Error&& at(Place place) && {
    place_ = std::move(place);
    return std::move(*this);
  }
  Error&& about_rank(int32_t rank) && {
    rank_ = rank;
    return std::move(*this);
  }
  Error&& because(const Error& cause) && {
    cause_ = std::make_shared<const Error>(cause);
    return std::move(*this);
  }

  const char* what() const noexcept override { return message_.c_str(); }
  gsel_status code() const { return code_; }
  const std::string& message() const { return message_; }
  const Place& place() const { return place_; }
  int32_t rank() const { return rank_; }
  const std::shared_ptr<const Error>& cause() const { return cause_; }

 private:
  gsel_status code_;
  std::string message_;
  Place place_;
  int32_t rank_ = -1;
  std::shared_ptr<const Error> cause_;
};

// fail(code, "text with {}", values...) throws.
template <class... Args>
[[noreturn]] void fail(gsel_status code, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(code, fmt::format(text, std::forward<Args>(args)...));
}

// Text of errno as "ENOENT (No such file or directory)".
std::string errno_text(int number);

}  // namespace gsel

// The object behind the C handle. Errors of plugins use it too.
struct gsel_error {
  explicit gsel_error(gsel::Error e);
  gsel::Error error;
  std::unique_ptr<gsel_error> cause;  // mirrors error.cause(), so that borrowed handles can be returned
};

namespace gsel {

// A new object for the caller; the static out-of-memory object when there is no memory for one.
gsel_error* to_handle(const Error& error) noexcept;
// The same for the exception being handled, of any class.
gsel_error* current_exception_to_handle() noexcept;
gsel_status code_of(const gsel_error* handle) noexcept;
// Frees the object unless it is the static one.
void free_handle(gsel_error* handle) noexcept;

// Turns a status that a plugin returned back into an exception; takes ownership of *handle.
void take_over(gsel_status status, gsel_error* handle);
inline void throw_if_failed(gsel_status status, gsel_error* handle) {
  if (status != GSEL_OK || handle) take_over(status, handle);
}

const char* status_text(gsel_status status);  // "invalid argument"
const char* status_name(gsel_status status);  // "GSEL_ERR_ARG"

Error current_error();

}  // namespace gsel
