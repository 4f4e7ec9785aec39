-- Run by test_neovim.py: opens a file with the documented configuration and writes what the editor then knows.
-- Neovim older than 0.11 gets stand-ins for the functions that the documentation uses, made of what it has.
vim.g.do_filetype_lua = 1

if not vim.lsp.config then
  local wanted = {}
  vim.lsp.config = function(name, settings) wanted[name] = settings end
  vim.lsp.enable = function(name)
    local settings = wanted[name]
    vim.api.nvim_create_autocmd("FileType", {
      pattern = settings.filetypes,
      callback = function(found)
        local id = vim.lsp.start_client({ name = name, cmd = settings.cmd, root_dir = vim.fn.getcwd() })
        vim.lsp.buf_attach_client(found.buf, id)
      end,
    })
  end
  vim.lsp.inlay_hint = { enable = function() end }
  vim.treesitter.language.register = vim.treesitter.language.register or function() end
end

dofile(vim.env.DOCUMENTED)

local function ask(method, params)
  params.textDocument = vim.lsp.util.make_text_document_params(0)
  for _, answer in pairs(vim.lsp.buf_request_sync(0, method, params, 10000) or {}) do
    return answer.result
  end
end

vim.api.nvim_create_autocmd("VimEnter", {
  callback = function()
    vim.wait(30000, function() return #vim.diagnostic.get(0) > 0 end, 50)
    local diagnostics = vim.tbl_map(function(d)
      return { code = d.code, message = d.message, line = d.lnum, col = d.col }
    end, vim.diagnostic.get(0))
    local whole = { start = { line = 0, character = 0 }, ["end"] = { line = 1000, character = 0 } }
    local hints = ask("textDocument/inlayHint", { range = whole })
    local report = { filetype = vim.bo.filetype, diagnostics = diagnostics, hints = hints }
    local out = io.open(vim.env.REPORT, "w")
    out:write(vim.json and vim.json.encode(report) or vim.fn.json_encode(report))
    out:close()
    vim.cmd("qall!")
  end,
})
