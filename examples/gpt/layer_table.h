/* layer_table.h: flags, and what backwards leave unread, of the layers whose functions stand above its #include. They
 * are those of layers.c. */

#define IN(i) GSEL_UNREAD_INPUT(i)
#define OUT(i) GSEL_UNREAD_OUTPUT(i)

static const struct layer_kind token = {.forward = token_run,
                                        .backward_weight = token_back_weight,
                                        .weight_unread = OUT(0),
                                        .unread_params = 1,
                                        .flags = GSEL_LAYER_POSITIONWISE};
static const struct layer_kind position = {.forward = position_run,
                                           .backward_input = sum_back_input,
                                           .backward_weight = position_back_weight,
                                           .input_unread = IN(0) | OUT(0),
                                           .weight_unread = IN(0) | OUT(0),
                                           .unread_params = 1,
                                           .flags = GSEL_LAYER_POSITIONWISE};
static const struct layer_kind layernorm = {.forward = layernorm_run,
                                            .backward_input = layernorm_back_input,
                                            .backward_weight = layernorm_back_weight,
                                            .input_unread = OUT(0),
                                            .weight_unread = OUT(0),
                                            .unread_params = 2,
                                            .flags = GSEL_LAYER_POSITIONWISE};
static const struct layer_kind linear = {.forward = linear_run,
                                         .backward_input = linear_back_input,
                                         .backward_weight = linear_back_weight,
                                         .input_unread = IN(0) | OUT(0),
                                         .weight_unread = OUT(0),
                                         .unread_params = 2,
                                         .flags = GSEL_LAYER_POSITIONWISE};
static const struct layer_kind attention = {
    .forward = attention_run, .backward_input = attention_back_input, .input_unread = OUT(0)};
static const struct layer_kind gelu = {
    .forward = gelu_run, .backward_input = gelu_back_input, .input_unread = OUT(0), .flags = GSEL_LAYER_POSITIONWISE};
static const struct layer_kind residual = {.forward = residual_run,
                                           .backward_input = sum_back_input,
                                           .backward_weight = residual_back_weight,
                                           .input_unread = IN(0) | IN(1) | OUT(0),
                                           .weight_unread = IN(0) | IN(1) | OUT(0),
                                           .unread_params = 1,
                                           .flags = GSEL_LAYER_POSITIONWISE};
static const struct layer_kind loss = {.forward = loss_run,
                                       .backward_input = loss_back_input,
                                       .input_unread = OUT(0) | OUT(1),
                                       .flags = GSEL_LAYER_LOSS | GSEL_LAYER_POSITIONWISE | GSEL_LAYER_SAVES_WHOLE};
