// comm/hosts/meeting.cc: see meeting.h.
#include "comm/hosts/meeting.h"

#include <unistd.h>

namespace gsel::hosts {

namespace {

std::unique_ptr<AddressStore> address_store_of(const Meeting& meeting) {
  switch (meeting.place.kind) {
    case MeetingPlace::Kind::address:
      return nullptr;
    case MeetingPlace::Kind::file:
      return file_store(meeting.place, meeting.job);
    case MeetingPlace::Kind::torchrun:
      return torchrun_store(meeting.place, meeting.job);
    case MeetingPlace::Kind::pmi:
      return pmi_store(meeting.place);
    case MeetingPlace::Kind::pmix:
      return pmix_store();
    case MeetingPlace::Kind::id:
      return id_store(*meeting.secret);
  }
  return nullptr;
}

}  // namespace

Greeting own_greeting(const Meeting& meeting) {
  Greeting own;
  own.rank = meeting.rank;
  own.world_size = meeting.world_size;
  own.pid = getpid();
  write_text(own.host, host_name());
  own.identity = key_of(host_identity());
  own.space = key_of(name_space());
  write_text(own.version, version_text());
  write_job(own.job, meeting.job_name);
  own.order = meeting.order;
  own.accelerator = meeting.accelerator;
  return own;
}

Met meet(const Meeting& meeting) {
  std::unique_ptr<AddressStore> address_store = address_store_of(meeting);
  return meeting.rank == 0 ? meet_as_root(meeting, std::move(address_store))
                           : meet_as_joiner(meeting, address_store.get());
}

}  // namespace gsel::hosts
