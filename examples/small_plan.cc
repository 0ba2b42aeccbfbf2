// SPDX-License-Identifier: Apache-2.0
//
// The worked example of docs/architecture.md: two layers with a ReLU between
// them. Prints the graph as it was built, then the plan, then what the arena
// would take with other options. Nothing is trained. Usage: small_plan
#include <cstdio>

#include "thimble/network.h"
#include "thimble/plan.h"

using namespace thimble;

static int Fail(const Status& status) {
  std::fprintf(stderr, "small_plan: %s\n", status.message().c_str());
  return 1;
}

int main() {
  Network net("small", /*batch=*/100);
  ValueId x = net.Images({.channels = 1, .height = 8, .width = 8});
  x = net.Relu(net.Linear("fc1", net.Flatten(x), 32));
  x = net.Linear("fc2", x, 10);
  auto model = net.Finish(x);
  if (!model.ok()) return Fail(model.status());
  std::printf("graph\n%s", model->graph.ToText().c_str());

  auto plan = MakePlan(*model, {});
  if (!plan.ok()) return Fail(plan.status());
  std::printf("%s", plan->Explain().c_str());

  auto apart = MakePlan(*model, {.inplace = false});
  if (!apart.ok()) return Fail(apart.status());
  std::printf("arena with in-place off %zu\n", apart->arena_bytes());
  auto alone = MakePlan(*model, {.inplace = false, .sharing = false});
  if (!alone.ok()) return Fail(alone.status());
  std::printf("arena with in-place and sharing off %zu\n",
              alone->arena_bytes());
  auto halves = MakePlan(*model, {.microbatch = 50});
  if (!halves.ok()) return Fail(halves.status());
  std::printf("arena with microbatches of 50 %zu\n", halves->arena_bytes());
  return 0;
}
