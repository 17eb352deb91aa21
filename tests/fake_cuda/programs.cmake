# Which tests of lockstep's GPU programs run on the fake CUDA.
#   fake_cuda_quick_<entry>       patterns of GoogleTest: in fake_cuda.<entry>, the others in
#                                 fake_cuda.<entry>.long (label long). "*": all. Unset: none.
#   fake_cuda_left_out_<program>  in no entry, with the reason.
