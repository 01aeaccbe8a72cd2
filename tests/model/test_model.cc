// model/test_model.cc: the protocols have no data race, read no wrong value and lose no wake-up in any execution of the
// machine, and the machine finds each of their mutants.
#include "protocols.h"
#include "support/check.h"

namespace {

using namespace model;

void holds(const char* name, const Program& program) {
  const Verdict verdict = explore(program);
  print_message("  %-52s %9llu states\n", name, static_cast<unsigned long long>(verdict.states));
  if (verdict.failure.empty()) return;
  for (const std::string& line : verdict.trace) print_error("    %s\n", line.c_str());
  fail_msg("%s: %s", name, verdict.failure.c_str());
}

void breaks(const char* name, const Program& program, const char* how) {
  const Verdict verdict = explore(program);
  print_message("  mutant: %-44s %9llu states: %s\n", name, static_cast<unsigned long long>(verdict.states),
                verdict.failure.c_str());
  if (verdict.failure.find(how) == std::string::npos)
    fail_msg("%s: expected \"%s\", found \"%s\"", name, how, verdict.failure.c_str());
}

// breaks(name, with<Staged>(&Staged::copied, Order::relaxed), ...): one field changed.
template <class How, class Field>
How with(Field How::*field, Field value, How how = How()) {
  how.*field = value;
  return how;
}

// The machine itself: what it allows and forbids, by the small programs that memory models are told apart with.

// Each of two threads posts its own flag, then looks at the other's. Both may miss the other's?
Program store_buffering(Order store, Order load, bool barrier) {
  enum { missed = 2 };
  Program program;
  for (int t = 0; t < 2; ++t) {
    Thread me;
    me.store(t, 1, store);
    if (barrier && t == 1) me.barrier_everywhere();
    me.load(1 - t, 0, load);
    const int misses = me.jump_if_below(0, 1);
    const int saw = me.jump();
    me.land(misses);
    me.add(missed, 1);
    me.load(missed, 1, Order::seq_cst);
    const int alone = me.jump_if_below(1, 2);
    me.read(0, 1);  // never written
    me.land(alone);
    me.land(saw);
    program.threads.push_back(me);
  }
  return program;
}

// Data handed on from thread to thread.
Program relay(int threads, Order post, Order look) {
  Program program;
  for (int t = 0; t < threads; ++t) {
    Thread me;
    if (t == 0) me.write(0, 5);
    if (t > 0) me.wait(t - 1, 1, look);
    if (t == threads - 1) me.read(0, 5);
    me.store(t, 1, post);
    program.threads.push_back(me);
  }
  return program;
}

void the_machine_knows_what_orders_mean(void**) {
  holds("store buffering, seq_cst", store_buffering(Order::seq_cst, Order::seq_cst, false));
  holds("store buffering, a barrier for both by one", store_buffering(Order::release, Order::relaxed, true));
  breaks("store buffering, release and acquire", store_buffering(Order::release, Order::acquire, false), "finds 0");
  breaks("store buffering, relaxed", store_buffering(Order::relaxed, Order::relaxed, false), "finds 0");
  breaks("store buffering, seq_cst stores alone", store_buffering(Order::seq_cst, Order::acquire, false), "finds 0");
  for (int threads = 2; threads <= 3; ++threads) {
    holds("data handed on, release and acquire", relay(threads, Order::release, Order::acquire));
    breaks("data handed on, relaxed store", relay(threads, Order::relaxed, Order::acquire), "data race");
    breaks("data handed on, relaxed load", relay(threads, Order::release, Order::relaxed), "data race");
  }
}

void header_lines_hold(void**) {
  for (int ranks = 2; ranks <= 3; ++ranks) holds("header lines", header_lines(with(&Header::ranks, ranks)));
  breaks("relaxed post", header_lines(with(&Header::post, Order::relaxed)), "data race");
  breaks("relaxed wait", header_lines(with(&Header::look, Order::relaxed)), "data race");
  breaks("one line for all calls", header_lines(with(&Header::parities, 1)), "data race");
  breaks("no wait for the others' lines", header_lines(with(&Header::waits_for_all, false)), "data race");
}

Program oldest_only(Program program) {
  program.oldest_is_enough = true;
  return program;
}

// In full with two ranks, and with three in the shorter search.
void holds_both(Staged how) {
  const std::string name = std::string("staged calls ") + how.calls + ", 3 chunks, ";
  how.ranks = 3;
  holds((name + "3 ranks, oldest only").c_str(), oldest_only(staged_calls(how)));
  how.ranks = 2;
  holds((name + "2 ranks").c_str(), staged_calls(how));
}

void breaks_both(const char* name, Staged how) {
  how.ranks = 3;
  breaks(name, oldest_only(staged_calls(how)), "data ");
  how.ranks = 2;
  breaks(name, staged_calls(how), "data ");
}

void staged_calls_hold(void**) {
  for (const char first : std::string("arsgb"))
    for (const char second : std::string("arsgb")) holds_both(with(&Staged::calls, std::string() + first + second));
  const Staged two_chunks = with(&Staged::chunks, 2);
  for (const char* calls : {"aa", "rr", "ss", "gg", "bb", "ab", "ga"})
    holds((std::string("staged calls ") + calls + ", 2 chunks, 3 ranks").c_str(),
          staged_calls(with(&Staged::calls, std::string(calls), two_chunks)));
}

void staged_calls_need_each_of_their_flags(void**) {
  for (const char* calls : {"ss", "gg", "bb"}) {
    const Staged how = with(&Staged::calls, std::string(calls));
    breaks_both("relaxed header", with(&Staged::header, Order::relaxed, how));
    breaks_both("no headers", with(&Staged::begins_with_headers, false, how));
    breaks_both("relaxed staged", with(&Staged::staged, Order::relaxed, how));
    breaks_both("relaxed wait for staged", with(&Staged::look_staged, Order::relaxed, how));
    breaks_both("relaxed copied", with(&Staged::copied, Order::relaxed, how));
    breaks_both("relaxed wait for copied", with(&Staged::look_copied, Order::relaxed, how));
    breaks_both("no wait for copied", with(&Staged::waits_for_copied, false, how));
    breaks_both("copied told first", with(&Staged::copied_comes_last, false, how));
    breaks_both("one buffer", with(&Staged::buffers, 1, how));
  }
  for (const char* calls : {"aa", "rr"}) {
    const Staged how = with(&Staged::calls, std::string(calls));
    breaks_both("relaxed staged", with(&Staged::staged, Order::relaxed, how));
    breaks_both("relaxed wait for staged", with(&Staged::look_staged, Order::relaxed, how));
    breaks_both("relaxed reduced", with(&Staged::reduced, Order::relaxed, how));
    breaks_both("relaxed wait for reduced", with(&Staged::look_reduced, Order::relaxed, how));
    breaks_both("no wait for reduced", with(&Staged::waits_for_reduced, false, how));
    breaks_both("one buffer", with(&Staged::buffers, 1, how));
  }
}

void channels_hold(void**) {
  holds("channel", channel_ring({}));
  breaks("relaxed sequence", channel_ring(with(&Ring::sequence, Order::relaxed)), "data race");
  breaks("relaxed taken", channel_ring(with(&Ring::taken, Order::relaxed)), "data race");
  breaks("relaxed wait for a line", channel_ring(with(&Ring::look_sequence, Order::relaxed)), "data race");
  breaks("relaxed wait for taken", channel_ring(with(&Ring::look_taken, Order::relaxed)), "data race");
  breaks("no wait for taken", channel_ring(with(&Ring::waits_for_taken, false)), "data race");
}

void offers_hold(void**) {
  holds("offers set aside", offers_set_aside({}));
  breaks("relaxed sequence", offers_set_aside(with(&Offers::sequence, Order::relaxed)), "data race");
  breaks("relaxed wait for a line", offers_set_aside(with(&Offers::look_sequence, Order::relaxed)), "data race");
  breaks("relaxed end", offers_set_aside(with(&Offers::ended, Order::relaxed)), "data race");
  breaks("relaxed wait for the end", offers_set_aside(with(&Offers::look_ended, Order::relaxed)), "data race");
  breaks("no wait for the end", offers_set_aside(with(&Offers::waits_for_end, false)), "data ");
}

void no_wake_up_is_lost(void**) {
  for (Sleep how : {Sleep(), symmetric_sleep()}) {
    const char* name = how.asymmetric ? "sleep, barrier by who sleeps" : "sleep, seq_cst";
    how.sleepers = 2, how.posts = 1;
    holds((std::string(name) + ", 2 sleepers, 1 post").c_str(), sleep_and_wake(how));
    how.sleepers = 1, how.posts = 2;
    holds((std::string(name) + ", 1 sleeper, 2 posts").c_str(), sleep_and_wake(how));
    breaks("sleepers looked at before the post", sleep_and_wake(with(&Sleep::looks_behind_the_post, false, how)),
           "stuck");
    breaks("the word is not bumped", sleep_and_wake(with(&Sleep::bumps_the_word, false, how)), "stuck");
    breaks("the word read behind the flag", sleep_and_wake(with(&Sleep::word_before_the_flag, false, how)), "stuck");
    breaks("no second look at the flag", sleep_and_wake(with(&Sleep::looks_again, false, how)), "stuck");
  }
  breaks("no barrier", sleep_and_wake(with(&Sleep::barrier, false)), "stuck");
  breaks("relaxed post", sleep_and_wake(with(&Sleep::post, Order::relaxed)), "data race");
  const Sleep symmetric = symmetric_sleep();
  breaks("release post, no barrier", sleep_and_wake(with(&Sleep::post, Order::release, symmetric)), "stuck");
  breaks("relaxed look at sleepers", sleep_and_wake(with(&Sleep::look_sleepers, Order::relaxed, symmetric)), "stuck");
}

void a_failure_reaches_who_goes_to_sleep(void**) {
  for (int sleepers = 1; sleepers <= 2; ++sleepers)
    holds("sleep while the communicator breaks", sleep_and_break(with(&Break::sleepers, sleepers)));
  breaks("looked at before the word only", sleep_and_break(with(&Break::looks_again, false)), "stuck");
}

void what_was_taken_back_is_no_result(void**) {
  holds("read in place, taken back", read_and_taken_back({}));
  breaks("no release before it is taken back", read_and_taken_back(with(&TakenBack::take_back, Order::relaxed)),
         "finds");
  breaks("no acquire behind the read", read_and_taken_back(with(&TakenBack::read, Order::relaxed)), "finds");
  breaks("looked at before the read", read_and_taken_back(with(&TakenBack::looks_behind_the_read, false)), "finds");
}

void nobody_touches_what_was_taken_back(void**) {
  holds("touched, taken back", touched_and_taken_back({}));
  breaks("release touch", touched_and_taken_back(with(&Touch::touch, Order::release)), "data race");
  breaks("acquire look by who touches", touched_and_taken_back(with(&Touch::look, Order::acquire)), "data race");
  breaks("broken marked with release", touched_and_taken_back(with(&Touch::mark_broken, Order::release)), "data race");
  breaks("relaxed look at touching", touched_and_taken_back(with(&Touch::look_touching, Order::relaxed)), "data race");
  breaks("relaxed stop", touched_and_taken_back(with(&Touch::stop, Order::relaxed)), "data race");
  breaks("looked at before the touch", touched_and_taken_back(with(&Touch::looks_behind_the_touch, false)),
         "data race");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_machine_knows_what_orders_mean),
      cmocka_unit_test(header_lines_hold),
      cmocka_unit_test(staged_calls_hold),
      cmocka_unit_test(staged_calls_need_each_of_their_flags),
      cmocka_unit_test(channels_hold),
      cmocka_unit_test(offers_hold),
      cmocka_unit_test(no_wake_up_is_lost),
      cmocka_unit_test(a_failure_reaches_who_goes_to_sleep),
      cmocka_unit_test(what_was_taken_back_is_no_result),
      cmocka_unit_test(nobody_touches_what_was_taken_back),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
