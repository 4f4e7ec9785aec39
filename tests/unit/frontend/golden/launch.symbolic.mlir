"graph.func"() ({
^bb0(%x: !tessera.tensor<[B, N], f32>, %w: !tessera.tensor<[N], f32>, %rate: !tessera.tensor<[], f32>):
  %0 = "graph.add"(%x, %w) : (!tessera.tensor<[B, N], f32>, !tessera.tensor<[N], f32>) -> !tessera.tensor<[B, N], f32>
  %y = "graph.launch"(%0, %rate) ({
    "tile.func"() ({
    ^bb0(%x_1: !tessera.view<[B, N], f32>, %a: !tessera.tile<[], f32>, %result: !tessera.view<[B, N], f32>):
      %rows_M = "tile.program_id"() {axis = 0 : i64} : () -> index
      %1 = "tile.dim"() {dim = 4 : i64} : () -> index
      %2 = "tile.imul"(%rows_M, %1) : (index, index) -> index
      %3 = "tile.dim"() {dim = 0 : i64} : () -> index
      %4 = "tile.load"(%x_1, %2, %3) {fill = 0 : i64} : (!tessera.view<[B, N], f32>, index, index) -> !tessera.tile<[4, N], f32>
      %5 = "tile.broadcast"(%a) {axes = []} : (!tessera.tile<[], f32>) -> !tessera.tile<[4, N], f32>
      %6 = "tile.mul"(%4, %5) : (!tessera.tile<[4, N], f32>, !tessera.tile<[4, N], f32>) -> !tessera.tile<[4, N], f32>
      "tile.store"(%result, %6, %2, %3) : (!tessera.view<[B, N], f32>, !tessera.tile<[4, N], f32>, index, index) -> ()
      "tile.return"() : () -> ()
    }) {sym_name = "scaled", grid = [#tessera.dim<"(B+3)//4">], arg_names = ["x", "a", "result"], writes = [2 : i64], returns = [2 : i64], num_warps = unit, num_stages = 2 : i64} : () -> ()
    "graph.yield"() : () -> ()
  }) : (!tessera.tensor<[B, N], f32>, !tessera.tensor<[], f32>) -> !tessera.tensor<[B, N], f32>
  %7 = "graph.constant"() {value = 2.0 : f64} : () -> !tessera.tensor<[], f32>
  %v = "graph.mul"(%w, %7) : (!tessera.tensor<[N], f32>, !tessera.tensor<[], f32>) -> !tessera.tensor<[N], f32>
  %8 = "graph.constant"() {value = 3.0 : f64} : () -> !tessera.tensor<[], f32>
  %v_1 = "graph.launch"(%w, %v, %8) ({
    "tile.func"() ({
    ^bb0(%x_2: !tessera.view<[N], f32>, %y_1: !tessera.view<[N], f32>, %a_1: !tessera.tile<[], f32>):
      %i = "tile.program_id"() {axis = 0 : i64} : () -> index
      %9 = "tile.dim"() {dim = 1024 : i64} : () -> index
      %10 = "tile.imul"(%i, %9) : (index, index) -> index
      %11 = "tile.load"(%x_2, %10) {fill = 0 : i64} : (!tessera.view<[N], f32>, index) -> !tessera.tile<[1024], f32>
      %12 = "tile.broadcast"(%a_1) {axes = []} : (!tessera.tile<[], f32>) -> !tessera.tile<[1024], f32>
      %13 = "tile.mul"(%12, %11) : (!tessera.tile<[1024], f32>, !tessera.tile<[1024], f32>) -> !tessera.tile<[1024], f32>
      %14 = "tile.load"(%y_1, %10) {fill = 0 : i64} : (!tessera.view<[N], f32>, index) -> !tessera.tile<[1024], f32>
      %15 = "tile.add"(%13, %14) : (!tessera.tile<[1024], f32>, !tessera.tile<[1024], f32>) -> !tessera.tile<[1024], f32>
      "tile.store"(%y_1, %15, %10) : (!tessera.view<[N], f32>, !tessera.tile<[1024], f32>, index) -> ()
      "tile.return"() : () -> ()
    }) {sym_name = "saxpy", grid = [#tessera.dim<"(N+1023)//1024">], arg_names = ["x", "y", "a"], writes = [1 : i64], returns = [], num_warps = unit, num_stages = 2 : i64} : () -> ()
    "graph.yield"() : () -> ()
  }) : (!tessera.tensor<[N], f32>, !tessera.tensor<[N], f32>, !tessera.tensor<[], f32>) -> !tessera.tensor<[N], f32>
  %16 = "graph.mul"(%y, %v_1) : (!tessera.tensor<[B, N], f32>, !tessera.tensor<[N], f32>) -> !tessera.tensor<[B, N], f32>
  "graph.return"(%16) : (!tessera.tensor<[B, N], f32>) -> ()
}) {sym_name = "between", arg_names = ["x", "w", "rate"]} : () -> ()
