"schedule.func"() ({
^bb0(%x: !tessera.tensor<[5, 7], f32>, %w: !tessera.tensor<[7], f32>, %rate: !tessera.tensor<[], f32>):
  %0 = "schedule.group"(%x, %w) ({
  ^bb0(%x_1: !tessera.tensor<[5, 7], f32>, %w_1: !tessera.tensor<[7], f32>):
    %1 = "graph.add"(%x_1, %w_1) : (!tessera.tensor<[5, 7], f32>, !tessera.tensor<[7], f32>) -> !tessera.tensor<[5, 7], f32>
    "schedule.yield"(%1) : (!tessera.tensor<[5, 7], f32>) -> ()
  }) {kind = "map", space = [5 : i64, 7 : i64], inner = [], label = "add"} : (!tessera.tensor<[5, 7], f32>, !tessera.tensor<[7], f32>) -> !tessera.tensor<[5, 7], f32>
  %y = "schedule.launch"(%0, %rate) ({
    "tile.func"() ({
    ^bb0(%x_2: !tessera.view<[5, 7], f32>, %a: !tessera.tile<[], f32>, %result: !tessera.view<[5, 7], f32>):
      %rows_M = "tile.program_id"() {axis = 0 : i64} : () -> index
      %2 = "tile.dim"() {dim = 8 : i64} : () -> index
      %3 = "tile.imul"(%rows_M, %2) : (index, index) -> index
      %4 = "tile.dim"() {dim = 0 : i64} : () -> index
      %5 = "tile.load"(%x_2, %3, %4) {fill = 0 : i64} : (!tessera.view<[5, 7], f32>, index, index) -> !tessera.tile<[8, 7], f32>
      %6 = "tile.broadcast"(%a) {axes = []} : (!tessera.tile<[], f32>) -> !tessera.tile<[8, 7], f32>
      %7 = "tile.mul"(%5, %6) : (!tessera.tile<[8, 7], f32>, !tessera.tile<[8, 7], f32>) -> !tessera.tile<[8, 7], f32>
      "tile.store"(%result, %7, %3, %4) : (!tessera.view<[5, 7], f32>, !tessera.tile<[8, 7], f32>, index, index) -> ()
      "tile.return"() : () -> ()
    }) {sym_name = "scaled", grid = [1 : i64], arg_names = ["x", "a", "result"], writes = [2 : i64], returns = [2 : i64], num_warps = unit, num_stages = 2 : i64} : () -> ()
    "schedule.yield"() : () -> ()
  }) {apart = [["add", "a place", "launch", "a place", "called kernel"]]} : (!tessera.tensor<[5, 7], f32>, !tessera.tensor<[], f32>) -> !tessera.tensor<[5, 7], f32>
  %v = "schedule.group"(%w) ({
  ^bb0(%w_2: !tessera.tensor<[7], f32>):
    %8 = "graph.constant"() {value = 2.0 : f64} : () -> !tessera.tensor<[], f32>
    %v_1 = "graph.mul"(%w_2, %8) : (!tessera.tensor<[7], f32>, !tessera.tensor<[], f32>) -> !tessera.tensor<[7], f32>
    "schedule.yield"(%v_1) : (!tessera.tensor<[7], f32>) -> ()
  }) {kind = "map", space = [7 : i64], inner = [], label = "mul"} : (!tessera.tensor<[7], f32>) -> !tessera.tensor<[7], f32>
  %9 = "graph.constant"() {value = 3.0 : f64} : () -> !tessera.tensor<[], f32>
  %v_2 = "schedule.launch"(%w, %v, %9) ({
    "tile.func"() ({
    ^bb0(%x_3: !tessera.view<[7], f32>, %y_1: !tessera.view<[7], f32>, %a_1: !tessera.tile<[], f32>):
      %i = "tile.program_id"() {axis = 0 : i64} : () -> index
      %10 = "tile.dim"() {dim = 1024 : i64} : () -> index
      %11 = "tile.imul"(%i, %10) : (index, index) -> index
      %12 = "tile.load"(%x_3, %11) {fill = 0 : i64} : (!tessera.view<[7], f32>, index) -> !tessera.tile<[1024], f32>
      %13 = "tile.broadcast"(%a_1) {axes = []} : (!tessera.tile<[], f32>) -> !tessera.tile<[1024], f32>
      %14 = "tile.mul"(%13, %12) : (!tessera.tile<[1024], f32>, !tessera.tile<[1024], f32>) -> !tessera.tile<[1024], f32>
      %15 = "tile.load"(%y_1, %11) {fill = 0 : i64} : (!tessera.view<[7], f32>, index) -> !tessera.tile<[1024], f32>
      %16 = "tile.add"(%14, %15) : (!tessera.tile<[1024], f32>, !tessera.tile<[1024], f32>) -> !tessera.tile<[1024], f32>
      "tile.store"(%y_1, %16, %11) : (!tessera.view<[7], f32>, !tessera.tile<[1024], f32>, index) -> ()
      "tile.return"() : () -> ()
    }) {sym_name = "saxpy", grid = [1 : i64], arg_names = ["x", "y", "a"], writes = [1 : i64], returns = [], num_warps = unit, num_stages = 2 : i64} : () -> ()
    "schedule.yield"() : () -> ()
  }) {apart = [["mul", "a place", "launch", "a place", "called kernel"]]} : (!tessera.tensor<[7], f32>, !tessera.tensor<[7], f32>, !tessera.tensor<[], f32>) -> !tessera.tensor<[7], f32>
  %17 = "schedule.group"(%y, %v_2) ({
  ^bb0(%y_2: !tessera.tensor<[5, 7], f32>, %v_3: !tessera.tensor<[7], f32>):
    %18 = "graph.mul"(%y_2, %v_3) : (!tessera.tensor<[5, 7], f32>, !tessera.tensor<[7], f32>) -> !tessera.tensor<[5, 7], f32>
    "schedule.yield"(%18) : (!tessera.tensor<[5, 7], f32>) -> ()
  }) {kind = "map", space = [5 : i64, 7 : i64], inner = [], label = "mul", apart = [["launch", "a place", "mul", "a place", "called kernel"], ["launch", "a place", "mul", "a place", "called kernel"]]} : (!tessera.tensor<[5, 7], f32>, !tessera.tensor<[7], f32>) -> !tessera.tensor<[5, 7], f32>
  "schedule.return"(%17) : (!tessera.tensor<[5, 7], f32>) -> ()
}) {sym_name = "between", arg_names = ["x", "w", "rate"], target = "reference"} : () -> ()
