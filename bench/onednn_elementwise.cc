// SPDX-License-Identifier: Apache-2.0
#include "onednn_peer.h"
#include "onednn_primitive.h"

namespace thimble::bench {
namespace {

constexpr auto kRelu = dnnl::algorithm::eltwise_relu;

}  // namespace

std::unique_ptr<Side> OneDnnElementwise(Elementwise what, int64_t elements) {
  auto side = std::make_unique<OneDnnSide>();
  const auto desc = F32({elements}, Tag::a);
  if (what == Elementwise::kAdd) {
    const dnnl::binary::primitive_desc pd(
        {dnnl::algorithm::binary_add, desc, desc, desc}, side->engine());
    side->Put(DNNL_ARG_SRC_0, Values(elements, 1), desc, desc);
    side->Put(DNNL_ARG_SRC_1, Values(elements, 2), desc, desc);
    side->PutEmpty(DNNL_ARG_DST, desc);
    side->Set(dnnl::binary(pd), pd.impl_info_str(), DNNL_ARG_DST, desc);
    return side;
  }
  const dnnl::eltwise_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, kRelu, desc}, side->engine());
  side->Put(DNNL_ARG_SRC, Values(elements, 1), desc, desc);
  if (what == Elementwise::kRelu) {
    side->PutEmpty(DNNL_ARG_DST, desc);
    side->Set(dnnl::eltwise_forward(forward), forward.impl_info_str(),
              DNNL_ARG_DST, desc);
    return side;
  }
  const dnnl::eltwise_backward::primitive_desc pd({kRelu, desc, desc},
                                                  side->engine(), forward);
  side->Put(DNNL_ARG_DIFF_DST, Values(elements, 2), desc, desc);
  side->PutEmpty(DNNL_ARG_DIFF_SRC, desc);
  side->Set(dnnl::eltwise_backward(pd), pd.impl_info_str(), DNNL_ARG_DIFF_SRC,
            desc);
  return side;
}

}  // namespace thimble::bench
