"""What a call of a function can be made from: who runs one without data asks a person for its open sizes."""

from __future__ import annotations

from tessera.compiler.frontend.names.signature import definition_signature
from tessera.compiler.frontend.sizes import declared_sizes, usual_sizes
from tessera_lsp.features.ir import asked_function
from tessera_lsp.messages import SIZES, FunctionParams, SizesResult
from tessera_lsp.server import TesseraServer


def register(server: TesseraServer) -> None:
    @server.feature(SIZES)
    async def sizes(params: FunctionParams) -> SizesResult:
        document = await server.document(params.text_document)
        analysis = asked_function(document, params).analysis
        declared = declared_sizes(definition_signature(analysis.definition))
        set_ = {name: size for name, size in server.settings_for(document).dims.items() if name in declared}
        unsaid = [name for name, default in declared.items() if default is None and name not in set_]
        return SizesResult(analysis.name, usual_sizes(analysis, set_), unsaid)
