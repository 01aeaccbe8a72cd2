// comm/hosts/meeting.cc: see meeting.h.
#include "comm/hosts/meeting.h"

namespace gsel::hosts {

namespace {

std::unique_ptr<Board> board_of(const Meeting& meeting) {
  switch (meeting.place.kind) {
    case MeetingPlace::Kind::address:
      return nullptr;
    case MeetingPlace::Kind::file:
      return file_board(meeting.place, meeting.job);
    case MeetingPlace::Kind::torchrun:
      return torchrun_board(meeting.place, meeting.job);
    case MeetingPlace::Kind::pmi:
      return pmi_board(meeting.place);
    case MeetingPlace::Kind::pmix:
      return pmix_board();
  }
  return nullptr;
}

}  // namespace

Met meet(const Meeting& meeting) {
  std::unique_ptr<Board> board = board_of(meeting);
  return meeting.rank == 0 ? meet_as_root(meeting, std::move(board)) : meet_as_guest(meeting, board.get());
}

}  // namespace gsel::hosts
