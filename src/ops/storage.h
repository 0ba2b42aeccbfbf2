// SPDX-License-Identifier: Apache-2.0
//
// Shape inference's question about storage types: whether an input is stored as
// the op's kernel reads it. Pure functions.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "thimble/graph.h"
#include "thimble/status.h"
#include "thimble/storage.h"

namespace thimble::ops {

// An error that names both where `spec` is not stored as `storage`. `what` is
// the input's name: "x", "grad_y".
Status CheckStored(std::string_view what, const ValueSpec& spec,
                   const Storage& storage);

// The same where several storages are taken.
Status CheckStoredAsOneOf(std::string_view what, const ValueSpec& spec,
                          std::span<const Storage> storages);

// That all inputs are f32; the first that is not is the error. `names` are in
// the order of the inputs; the op may lack the last ones.
Status CheckF32(std::span<const ValueSpec> inputs,
                std::initializer_list<std::string_view> names);

}  // namespace thimble::ops
