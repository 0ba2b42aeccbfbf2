// SPDX-License-Identifier: Apache-2.0
//
// The parts of a plan's page that are the same for every plan: how it looks and
// how it answers to mouse and keyboard. Constants, safe from every thread.
//
// The script reads what WritePlanHtml (thimble/report.h) has drawn: one <rect>
// per buffer with its plan's figures as coordinates, and the names of the ops.
#pragma once

#include <string_view>

namespace thimble::report {

extern const std::string_view kPageStyle;
extern const std::string_view kPageScript;

}  // namespace thimble::report
