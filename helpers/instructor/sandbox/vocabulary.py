"""What a kernel may name: an allow-list, written by `python -m helpers.instructor.sandbox.dialect`."""

LANGUAGE = frozenset(
    """
    abs add advance arange argmax argmin associative_scan assume atomic_add atomic_and atomic_cas atomic_max
    atomic_min atomic_or atomic_xchg atomic_xor bfloat16 bitonic_merge broadcast broadcast_to cast cat cdiv ceil
    clamp constexpr cos cumprod cumsum debug_barrier device_assert device_print div_rn dot dot_scaled erf exp exp2
    expand_dims fdiv flip float16 float32 float64 float8e4b15 float8e4b8 float8e4nv float8e5 float8e5b16 floor fma
    full gather histogram int1 int16 int32 int64 int8 interleave join load load_tensor_descriptor log log2
    make_block_ptr make_tensor_descriptor max max_constancy max_contiguous maximum min minimum mul multiple_of
    num_programs pair_uniform_to_normal permute philox philox_impl pi32_t program_id rand rand4x randint randint4x
    randn randn4x range ravel reduce reduce_or reshape rsqrt sigmoid sin softmax sort split sqrt sqrt_rn squeeze
    static_assert static_print static_range store store_tensor_descriptor sub sum swizzle2d to_tensor topk trans
    uint16 uint32 uint64 uint8 uint_to_uniform_float umulhi unsqueeze view void where xor_sum zeros zeros_like
    """.split()
)
"""The names of triton.language that stand for an operation, a dtype or a constant."""

LANGUAGE_MATH = frozenset(
    """
    abs ceil cos div_rn erf exp exp2 fdiv floor fma log log2 rsqrt sin sqrt sqrt_rn umulhi
    """.split()
)
"""The names of triton.language.math that stand for an operation."""

HELPER_FUNCTIONS = frozenset(
    """
    cdiv next_power_of_2
    """.split()
)
"""The names of triton itself that a kernel may call."""

PYTHON_MATH = frozenset(
    """
    acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos cosh degrees dist e erf erfc exp exp2 expm1
    fabs factorial floor fmod frexp fsum gamma gcd hypot inf isclose isfinite isinf isnan isqrt lcm ldexp lgamma log
    log10 log1p log2 modf nan nextafter perm pi pow prod radians remainder sin sinh sqrt tan tanh tau trunc ulp
    """.split()
)
"""The functions and numbers of Python's math."""

PYTHON_BUILTINS = frozenset(
    """
    float int isinstance len list max min print range
    """.split()
)
"""Python's functions that the compiler knows."""

ATTRIBUTES = frozenset(
    """
    T abs advance argmax argmin associative_scan atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or
    atomic_xchg atomic_xor block_shape broadcast_to cast cdiv ceil cos cumprod cumsum dtype element_ty erf exp exp2
    expand_dims exponent_bias flip floor fp_mantissa_width gather get_block_shapes get_int_max_value
    get_int_min_value histogram int_bitwidth is_bf16 is_block is_bool is_const is_dtype is_floating is_fp16 is_fp32
    is_fp64 is_fp8 is_fp8e4b15 is_fp8e4b8 is_fp8e4nv is_fp8e5 is_fp8e5b16 is_int is_int1 is_int16 is_int32 is_int64
    is_int8 is_int_signed is_int_unsigned is_ptr is_standard_floating is_uint16 is_uint32 is_uint64 is_uint8 is_void
    item itemsize load log log2 logical_and logical_or max min name nbytes numel permute primitive_bitwidth ravel
    reduce reduce_or reshape rsqrt scalar scatter shape sigmoid sin softmax sort split sqrt sqrt_rn store strides
    sum to trans type value view xor_sum
    """.split()
)
"""The methods of tiles, descriptors and constants that stand for operations, what types tell, and their fields."""

KEYWORDS = frozenset(
    """
    a acc allow_tf32 arg1 arg2 axis b base bitcast block_shape boundary_check c0 c1 c2 c3 cache_modifier can_reorder
    cmp combine_fn cond condition desc descending dim disable_licm disallow_acc_multi_buffer div dtype end
    eviction_policy fast_math flatten fp_downcast_rounding hex i ieee_rounding index input input_precision j k k0 k1
    keep_dims lhs lhs_format lhs_k_pack lhs_scale loop_unroll_factor mask max max_num_imprecise_acc min msg n_rounds
    num_bins num_stages offset offsets order other out_dtype padding_option pointer prefix propagate_nan
    return_indices return_indices_tie_break_left reverse rhs rhs_format rhs_k_pack rhs_scale sanitize_overflow scope
    seed sem sep shape size_g size_i size_j src start step strides tie_break_left u1 u2 val value values volatile
    warp_specialize x y z
    """.split()
)
"""The names of the parameters of all these operations."""
