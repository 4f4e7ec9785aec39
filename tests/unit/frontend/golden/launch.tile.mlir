"tile.func"() ({
^bb0(%x: !tessera.view<[5, 7], f32>, %w: !tessera.view<[1, 7], f32>, %out: !tessera.view<[5, 7], f32>):
  %0 = "tile.dim"() {dim = 0 : i64} : () -> index
  %1 = "tile.load"(%x, %0, %0) {fill = 0 : i64} : (!tessera.view<[5, 7], f32>, index, index) -> !tessera.tile<[5, 7], f32>
  %2 = "tile.load"(%w, %0, %0) {fill = 0 : i64} : (!tessera.view<[1, 7], f32>, index, index) -> !tessera.tile<[1, 7], f32>
  %3 = "tile.broadcast"(%2) {axes = [0 : i64, 1 : i64]} : (!tessera.tile<[1, 7], f32>) -> !tessera.tile<[5, 7], f32>
  %4 = "tile.add"(%1, %3) : (!tessera.tile<[5, 7], f32>, !tessera.tile<[5, 7], f32>) -> !tessera.tile<[5, 7], f32>
  "tile.store"(%out, %4, %0, %0) : (!tessera.view<[5, 7], f32>, !tessera.tile<[5, 7], f32>, index, index) -> ()
  "tile.return"() : () -> ()
}) {sym_name = "between_0_add", grid = [], arg_names = ["x", "w", "out"], writes = [2 : i64]} : () -> ()

"tile.func"() ({
^bb0(%x: !tessera.view<[5, 7], f32>, %a: !tessera.tile<[], f32>, %result: !tessera.view<[5, 7], f32>):
  %rows_M = "tile.program_id"() {axis = 0 : i64} : () -> index
  %0 = "tile.dim"() {dim = 8 : i64} : () -> index
  %1 = "tile.imul"(%rows_M, %0) : (index, index) -> index
  %2 = "tile.dim"() {dim = 0 : i64} : () -> index
  %3 = "tile.load"(%x, %1, %2) {fill = 0 : i64} : (!tessera.view<[5, 7], f32>, index, index) -> !tessera.tile<[8, 7], f32>
  %4 = "tile.broadcast"(%a) {axes = []} : (!tessera.tile<[], f32>) -> !tessera.tile<[8, 7], f32>
  %5 = "tile.mul"(%3, %4) : (!tessera.tile<[8, 7], f32>, !tessera.tile<[8, 7], f32>) -> !tessera.tile<[8, 7], f32>
  "tile.store"(%result, %5, %1, %2) : (!tessera.view<[5, 7], f32>, !tessera.tile<[8, 7], f32>, index, index) -> ()
  "tile.return"() : () -> ()
}) {sym_name = "scaled", grid = [1 : i64], arg_names = ["x", "a", "result"], writes = [2 : i64], returns = [2 : i64], num_warps = unit, num_stages = 2 : i64} : () -> ()

"tile.func"() ({
^bb0(%w: !tessera.view<[7], f32>, %out: !tessera.view<[7], f32>):
  %0 = "tile.dim"() {dim = 0 : i64} : () -> index
  %1 = "tile.load"(%w, %0) {fill = 0 : i64} : (!tessera.view<[7], f32>, index) -> !tessera.tile<[7], f32>
  %2 = "tile.constant"() {value = 2.0 : f64} : () -> !tessera.tile<[], f32>
  %3 = "tile.broadcast"(%2) {axes = []} : (!tessera.tile<[], f32>) -> !tessera.tile<[1], f32>
  %4 = "tile.broadcast"(%3) {axes = [0 : i64]} : (!tessera.tile<[1], f32>) -> !tessera.tile<[7], f32>
  %v = "tile.mul"(%1, %4) : (!tessera.tile<[7], f32>, !tessera.tile<[7], f32>) -> !tessera.tile<[7], f32>
  "tile.store"(%out, %v, %0) : (!tessera.view<[7], f32>, !tessera.tile<[7], f32>, index) -> ()
  "tile.return"() : () -> ()
}) {sym_name = "between_1_mul", grid = [], arg_names = ["w", "out"], writes = [1 : i64]} : () -> ()

"tile.func"() ({
^bb0(%x: !tessera.view<[7], f32>, %y: !tessera.view<[7], f32>):
  %0 = "tile.constant"() {value = 3.0 : f64} : () -> !tessera.tile<[], f32>
  %i = "tile.program_id"() {axis = 0 : i64} : () -> index
  %1 = "tile.dim"() {dim = 1024 : i64} : () -> index
  %2 = "tile.imul"(%i, %1) : (index, index) -> index
  %3 = "tile.load"(%x, %2) {fill = 0 : i64} : (!tessera.view<[7], f32>, index) -> !tessera.tile<[1024], f32>
  %4 = "tile.broadcast"(%0) {axes = []} : (!tessera.tile<[], f32>) -> !tessera.tile<[1024], f32>
  %5 = "tile.mul"(%4, %3) : (!tessera.tile<[1024], f32>, !tessera.tile<[1024], f32>) -> !tessera.tile<[1024], f32>
  %6 = "tile.load"(%y, %2) {fill = 0 : i64} : (!tessera.view<[7], f32>, index) -> !tessera.tile<[1024], f32>
  %7 = "tile.add"(%5, %6) : (!tessera.tile<[1024], f32>, !tessera.tile<[1024], f32>) -> !tessera.tile<[1024], f32>
  "tile.store"(%y, %7, %2) : (!tessera.view<[7], f32>, !tessera.tile<[1024], f32>, index) -> ()
  "tile.return"() : () -> ()
}) {sym_name = "saxpy", grid = [1 : i64], arg_names = ["x", "y"], writes = [1 : i64], returns = [], num_warps = unit, num_stages = 2 : i64} : () -> ()

"tile.func"() ({
^bb0(%y: !tessera.view<[5, 7], f32>, %v: !tessera.view<[1, 7], f32>, %out: !tessera.view<[5, 7], f32>):
  %0 = "tile.dim"() {dim = 0 : i64} : () -> index
  %1 = "tile.load"(%y, %0, %0) {fill = 0 : i64} : (!tessera.view<[5, 7], f32>, index, index) -> !tessera.tile<[5, 7], f32>
  %2 = "tile.load"(%v, %0, %0) {fill = 0 : i64} : (!tessera.view<[1, 7], f32>, index, index) -> !tessera.tile<[1, 7], f32>
  %3 = "tile.broadcast"(%2) {axes = [0 : i64, 1 : i64]} : (!tessera.tile<[1, 7], f32>) -> !tessera.tile<[5, 7], f32>
  %4 = "tile.mul"(%1, %3) : (!tessera.tile<[5, 7], f32>, !tessera.tile<[5, 7], f32>) -> !tessera.tile<[5, 7], f32>
  "tile.store"(%out, %4, %0, %0) : (!tessera.view<[5, 7], f32>, !tessera.tile<[5, 7], f32>, index, index) -> ()
  "tile.return"() : () -> ()
}) {sym_name = "between_2_mul", grid = [], arg_names = ["y", "v", "out"], writes = [2 : i64]} : () -> ()
