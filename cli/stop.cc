// SPDX-License-Identifier: Apache-2.0
#include "stop.h"

#include <signal.h>

namespace thimble::cli {
namespace {

std::atomic<bool> g_stop{false};

// The first signal asks for a clean end. A second one, of whatever number, ends
// the process by itself: it is held back until the handler is done.
void OnStopSignal(int number) {
  if (!g_stop.exchange(true)) return;
  signal(number, SIG_DFL);
  raise(number);
}

}  // namespace

const std::atomic<bool>* StopOnSignals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before = {};
    sigaction(number, nullptr, &before);
    // nohup and a shell's background jobs ask for that.
    if (before.sa_handler == SIG_IGN) continue;
    struct sigaction action = {};
    action.sa_handler = OnStopSignal;
    sigaction(number, &action, nullptr);
  }
  // A log or terminal that goes away is an error code, not the end.
  signal(SIGPIPE, SIG_IGN);
  return &g_stop;
}

}  // namespace thimble::cli
