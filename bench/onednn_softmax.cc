// SPDX-License-Identifier: Apache-2.0
#include "onednn_peer.h"
#include "onednn_primitive.h"

namespace thimble::bench {

std::unique_ptr<Side> OneDnnSoftmax(int64_t rows, int64_t classes) {
  auto side = std::make_unique<OneDnnSide>();
  const auto desc = F32({rows, classes}, Tag::ab);
  const dnnl::softmax_forward::primitive_desc pd(
      {dnnl::prop_kind::forward_training, desc, /*axis=*/1}, side->engine());
  side->Put(DNNL_ARG_SRC, Values(rows * classes, 1), desc, desc);
  side->PutEmpty(DNNL_ARG_DST, desc);
  side->Set(dnnl::softmax_forward(pd), pd.impl_info_str(), DNNL_ARG_DST, desc);
  return side;
}

}  // namespace thimble::bench
