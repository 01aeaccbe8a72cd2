// schedule/schedule_handle.h: the object behind gsel_schedule: a schedule and its text, made on demand.
#pragma once

#include <mutex>
#include <string>
#include <utility>

#include "schedule/schedule.h"

struct gsel_schedule {
  explicit gsel_schedule(gsel::Schedule schedule) : impl(std::move(schedule)) {}

  const gsel::Schedule impl;

  const std::string& printed() const {
    std::call_once(text_made_, [this] { text_ = gsel::to_text(impl); });
    return text_;
  }

 private:
  mutable std::once_flag text_made_;
  mutable std::string text_;
};
