// comm/hosts/meeting.cc: see meeting.h.
#include "comm/hosts/meeting.h"

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
  }
  return nullptr;
}

}  // namespace

Met meet(const Meeting& meeting) {
  std::unique_ptr<AddressStore> address_store = address_store_of(meeting);
  return meeting.rank == 0 ? meet_as_root(meeting, std::move(address_store))
                           : meet_as_joiner(meeting, address_store.get());
}

}  // namespace gsel::hosts
