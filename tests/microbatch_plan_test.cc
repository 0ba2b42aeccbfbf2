// SPDX-License-Identifier: Apache-2.0
//
// Plans of microbatches and ghost batches: what they take, what lives through a
// step, and what is refused.
#include <gtest/gtest.h>

#include <string>

#include "graph/op.h"
#include "microbatch_nets.h"
#include "thimble/model.h"
#include "thimble/plan.h"

namespace thimble::testing {
namespace {

size_t BytesOf(const Plan& plan, Role role) {
  size_t bytes = 0;
  for (const Buffer& b : plan.buffers()) {
    if (b.role == role) bytes += b.bytes;
  }
  return bytes;
}

TEST(Microbatch, ActivationsOfWrnShrinkWithIt) {
  const ImageLayer cifar = {.channels = 3, .height = 32, .width = 32};
  const Result<Model> model =
      BuildModel("wrn-28-2", {.batch = 100, .images = cifar});
  ASSERT_TRUE(model.ok());
  const Plan whole = PlanOf(*model, {.threads = 2});
  const Plan tenth = PlanOf(*model, {.threads = 2, .microbatch = 10});
  EXPECT_EQ(tenth.batch(), 100);
  EXPECT_EQ(tenth.microbatch(), 10);
  EXPECT_EQ(tenth.microbatches(), 10);
  const auto activations = [](const Plan& plan) {
    return plan.peak_bytes(Role::kActivation) +
           plan.peak_bytes(Role::kActivationGradient);
  };
  EXPECT_LE(activations(tenth), activations(whole) / 9);
  EXPECT_LE(tenth.arena_bytes(), whole.arena_bytes() / 5);
  // One buffer for each gradient, whatever the microbatch.
  EXPECT_EQ(BytesOf(tenth, Role::kGradient), BytesOf(whole, Role::kGradient));
  // A step computes the same; the sums of gamma's and beta's gradients come on
  // top.
  EXPECT_GE(tenth.flops_step(), whole.flops_step());
  EXPECT_LE(tenth.flops_step() - whole.flops_step(),
            10 * model->graph.ParameterCount());
}

TEST(Microbatch, WhatTheUpdateReadsLivesFromTheFirstOp) {
  const Model model = Normalized(6);
  const Plan plan = PlanOf(model, {.microbatch = 2});
  const Plan whole = PlanOf(model, {});
  size_t carried = 0;
  for (const ScheduledOp& s : plan.schedule()) {
    if (s.phase != Phase::kUpdate) continue;
    for (ValueId v : plan.graph().op(s.op).inputs) {
      if (!plan.graph().value(v).producer.valid()) continue;
      ++carried;
      EXPECT_TRUE(plan.IsCarried(v));
      EXPECT_EQ(plan.BufferOf(v).live.begin, 0u);
    }
  }
  // A gradient for each parameter, and two next statistics of each norm.
  EXPECT_EQ(carried, plan.parameters().size() + plan.statistics().size());
  for (const ParameterState& p : whole.parameters()) {
    EXPECT_FALSE(whole.IsCarried(p.gradient));
  }
}

TEST(Microbatch, MustDivideTheBatch) {
  const Model model = Normalized(12);
  const auto refused = [&model](const PlanOptions& options) {
    const Result<Plan> plan = MakePlan(model, options);
    EXPECT_FALSE(plan.ok());
    EXPECT_EQ(plan.status().code(), StatusCode::kUsage);
    return plan.status().message();
  };
  EXPECT_EQ(refused({.microbatch = 5}),
            "a microbatch of 5 images does not divide the batch of 12; 4 "
            "would");
  EXPECT_EQ(refused({.microbatch = 24}),
            "a microbatch of 24 images does not divide the batch of 12; 12 "
            "would");
  EXPECT_EQ(refused({.microbatch = 6, .ghost_batch = 4}),
            "a ghost batch of 4 images does not divide the microbatch of 6; 3 "
            "would");
  EXPECT_EQ(refused({.ghost_batch = 5}),
            "a ghost batch of 5 images does not divide the batch of 12; 4 "
            "would");
  refused({.microbatch = -1});
  refused({.ghost_batch = -2});
  EXPECT_TRUE(MakePlan(model, {.microbatch = 12, .ghost_batch = 12}).ok());
}

TEST(Microbatch, GroupsAreRefusedWhereNothingIsNormalised) {
  const Result<Plan> plan = MakePlan(Plain(12), {.ghost_batch = 5});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kUsage);
  EXPECT_EQ(plan.status().message(),
            "a ghost batch of 5 images has no effect on plain, which has no "
            "batch norms; leave out PlanOptions::ghost_batch");
}

}  // namespace
}  // namespace thimble::testing
